"""The `memory` training service: a language model that is a table, really trained, in this process and without torch."""
