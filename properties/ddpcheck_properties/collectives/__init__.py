"""What collectives must do: values, groups, handles, memory, and nothing that depends on size, layout or history."""
