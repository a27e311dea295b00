"""The file formats of every project: one file maps one project's names and layouts to ours."""
