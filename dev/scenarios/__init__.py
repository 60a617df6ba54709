"""`make run`, `run-chatbot`, `run-worker`, `soak`: one runner, and three loads on the deployed stack."""
