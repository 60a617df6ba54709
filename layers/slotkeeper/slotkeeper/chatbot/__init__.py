"""The chatbot: one HTTP endpoint in front of a chat API, with a shared token."""
