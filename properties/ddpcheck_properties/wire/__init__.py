"""What goes over the wire: no more than is needed."""
