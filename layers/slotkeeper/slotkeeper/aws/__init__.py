"""What the flows share of AWS: clients, conditional writes, message attributes, custom resources."""
