"""One edit, whole repository: from edits shown to rules, judged by every place that they would change."""
