"""Task apps: an environment behind the routes that evaluation and prompt optimization call."""
