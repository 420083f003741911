"""The scheduler extender and the rail webhook; their work comes with a later release."""
