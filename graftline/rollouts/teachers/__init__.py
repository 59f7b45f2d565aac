"""Teachers: whatever proposes the next step on a task."""
