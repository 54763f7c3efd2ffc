"""All-reduces, message by message, on a described cluster: SimGrid's discrete events, beside the formulas."""
