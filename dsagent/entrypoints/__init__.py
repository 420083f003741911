"""Programs: each parses its input, calls the services and renders what they return."""
