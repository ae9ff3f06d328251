import sqlite3, unittest

import app, models


class Shop(unittest.TestCase):
    def test_every_field_is_a_column(self):
        columns = app.ask("SELECT column_name FROM information_schema.columns "
                          "WHERE table_name = 'customers' ORDER BY ordinal_position")
        self.assertEqual(models.FIELDS, columns)

    def test_visits_are_counted(self):
        visits = sqlite3.connect("visits.db")
        self.assertEqual([(7,)], visits.execute(f"SELECT {models.VISITS} FROM visits").fetchall())
