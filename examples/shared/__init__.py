"""Runs an example on one machine: a broker, its input, a job, and a live view.

`make run EXAMPLE=name` runs the example of that name. An example is a folder beside this one with

- `__main__.py`, which calls `shared.runner.main(name, load_example)`;
- a function `load_example()` that returns a `shared.example.Example`:

| field | what it is |
|---|---|
| `name` | the name of the folder, and of the directory for the data in `.ottla` |
| `input` | the topic that the job reads first |
| `outputs` | the topics and Parquet files that the view counts and shows, the earliest first |
| `feed` | a function from `Context` to a `Feed`, which writes the input; see `feed.generated` |
| `job` | a function from `Context` to a `Job`, which reads the input and writes the outputs |
| `topics` | more topics to create; those of `input` and `outputs` need not be repeated |

`spark_job.declared(file)` is the job of a declared pipeline. An example without Spark passes
`uses_spark=False` to `main`, and is in `WITHOUT_SPARK` of the Makefile.

The runner does the rest: it starts and stops the broker and Spark, creates the topics, shows the
state, ends after 60 s without a terminal, prints a summary, and handles Ctrl-C. Everything that an
example writes is in `Context.directory`.
"""
