"""Brings both databases to the newest migration: `migrate.py`, or back to nothing: `migrate.py reset`."""
import pathlib, sqlite3, sys

import app

app.ask("CREATE TABLE IF NOT EXISTS schema_migrations (version text)")
if sys.argv[1:] == ["reset"]:
    app.ask("DROP TABLE customers; DELETE FROM schema_migrations")
    pathlib.Path("visits.db").unlink()
    sys.exit()
done = app.ask("SELECT version FROM schema_migrations")
for step in sorted(pathlib.Path("migrations").glob("*.sql")):
    if step.stem not in done:
        app.ask(f"BEGIN; {step.read_text()}; INSERT INTO schema_migrations VALUES ('{step.stem}'); COMMIT")
with sqlite3.connect("visits.db") as visits:
    visits.execute("PRAGMA journal_mode = wal")
    visits.executescript("CREATE TABLE IF NOT EXISTS visits (seen INTEGER); INSERT INTO visits VALUES (7)")
