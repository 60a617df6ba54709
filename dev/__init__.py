"""What a user of the deployed stack never needs: the emulator, scenarios, benchmarks and tools."""
