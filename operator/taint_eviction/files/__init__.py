"""Files that people write for this project. They are read strictly, and each problem is named with its line."""
