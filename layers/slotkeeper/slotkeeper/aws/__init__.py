"""AWS code that the flows share: clients, conditional writes, message attributes, custom resources."""
