"""A slot's cycle, reserve, confirm and release, beside a bare write and beside other ways to count to N in DynamoDB."""
