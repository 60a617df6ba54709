"""The embedded AWS for this project: one process on 127.0.0.1 that the real template is deployed to."""
