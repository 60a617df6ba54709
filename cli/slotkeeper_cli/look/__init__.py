"""The look of all pages: templates, one stylesheet, one script, one picture of slots over time."""
