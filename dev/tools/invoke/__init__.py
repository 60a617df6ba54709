"""`make invoke`: call a function with a sample event, on an embedded AWS."""
