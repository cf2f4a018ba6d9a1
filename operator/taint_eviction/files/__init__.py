"""Files that people write for this project: read strictly, with every problem named by its line."""
