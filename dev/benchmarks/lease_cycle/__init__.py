"""A lease's cycle next to other locks in DynamoDB."""
