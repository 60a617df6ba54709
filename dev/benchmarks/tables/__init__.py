"""The two tables on DynamoDB Local: a process's item, a long queue, the calls of one request, and cancels alongside."""
