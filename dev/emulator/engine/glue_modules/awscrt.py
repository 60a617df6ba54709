"""Refuses the import of a package that the development environment has, and botocore imports if it exists.

AWS: "Glue: Configuring job properties for Python shell jobs": it is in neither set of libraries. Its import takes a
fifth of the time that boto3 takes.
"""

raise ModuleNotFoundError("awscrt is not one of the libraries of Glue's Python shell", name="awscrt")
