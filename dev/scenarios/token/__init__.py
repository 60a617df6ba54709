"""`make run-chatbot`: many senders, many instances of the chatbot, one token, which is killed again and again."""
