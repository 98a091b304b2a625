"""The declaration of a pipeline: its model, its YAML form, and every check that needs no Spark.

Invariant: nothing here imports Spark or starts Java. A pipeline is a value (`model`); YAML is one
way to write it. Each module that finds mistakes returns problems with the path of the value, and
`loading` adds the line and column of the file.
"""
