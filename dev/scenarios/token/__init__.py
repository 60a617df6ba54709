"""`make run-chatbot`: many senders, many instances of the chatbot, and one token that is invalidated repeatedly."""
