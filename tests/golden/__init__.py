"""What people and machines read of chosen moments, as files; ``python -m tests.golden`` writes them anew."""
