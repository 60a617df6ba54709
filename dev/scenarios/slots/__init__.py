"""`make run`: real requests through the deployed workflow on the embedded AWS, and a report from AWS's own records."""
