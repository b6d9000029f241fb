"""One module per command.

Each has `add_arguments(parser)`, `run(args)`, which returns the JSON object of the command, and
`print_table(result)`, which shows the same object to people.
"""
