"""check_release.py on a repository of its own, whose ./run does as it is told."""

import contextlib
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "check_release.py"
RUN = """#!/bin/sh
echo "$*" >> calls
case $1 in
good) echo "100% tests passed, 0 tests failed out of 3"; echo "run: SKIP: no device" ;;
bad) [ -e mended ] || exit 7 ;;
dist) mkdir -p dist; date +%N > "dist/a.tar.gz" ;;
wheel) mkdir -p dist; echo same > dist/halyard-1.whl ;;
esac
"""


class CheckRelease(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("check_release", SCRIPT)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        (self.root / "run").write_text(RUN)
        (self.root / "run").chmod(0o755)
        (self.root / "tests").mkdir()
        (self.root / ".gitignore").write_text("build\ncalls\nmended\ndist\nlock\n")
        self.commit()
        self.module.ROOT = self.root
        self.module.STEPS = [self.module.Step("good", "what passes", "good one"),
                             self.module.Step("bad", "what fails", "bad"),
                             self.module.Step("none", "what cannot be done", "=none")]
        self.module.none = self.skip

    def skip(self, log, folder):
        raise self.module.Skipped("there is none here")

    def commit(self):
        git = ["git", "-C", self.root, "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=State"]):
            subprocess.run([*git, *arguments], check=True)

    def check(self, *arguments):
        """The status, and the table by step."""
        (self.root / "calls").write_text("")
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            status = self.module.main(list(arguments))
        rows = [line.strip("| ").split(" | ") for line in out.getvalue().splitlines()[2:]]
        return status, {row[0]: row[2:] for row in rows}, (self.root / "calls").read_text().split("\n")[:-1]

    def test_a_passed_step_is_not_repeated(self):
        status, rows, calls = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(calls, ["good one", "bad"])
        self.assertEqual([rows[name][0] for name in ("good", "bad", "none")], ["passed", "FAILED", "skipped"])
        self.assertIn("100% tests passed, 0 tests failed out of 3; 1 lines about what was skipped", rows["good"])
        self.assertIn("there is none here", rows["none"])
        (self.root / "mended").write_text("")
        status, rows, calls = self.check()
        self.assertEqual((status, calls, rows["bad"][0]), (1, ["bad"], "passed"))
        self.assertEqual(self.check("good")[2], ["good one"])
        self.assertEqual(self.check("--table")[2], [])

    def test_all_is_said_only_where_all_passed(self):
        self.module.STEPS = self.module.STEPS[:1]
        self.assertEqual(self.check("--table")[0], 1)
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.check("--table")[0], 0)

    def test_what_may_be_skipped_is_no_failure(self):
        for may_be_skipped in False, True:
            self.module.STEPS = [self.module.Step("none", "what cannot be done", "=none", may_be_skipped)]
            self.assertEqual(self.check()[0], 0 if may_be_skipped else 1)

    def test_another_state_begins_anew(self):
        self.check("good")
        (self.root / "new").write_text("")
        with self.assertRaises(SystemExit):  # what is not committed has no hash
            self.check("good")
        self.commit()
        self.assertEqual(self.check("--table")[1]["good"][0], "not run")

    def test_what_is_made_twice_has_the_same_bytes(self):
        with (self.root / "log").open("w") as log:
            self.assertEqual(len(self.module.made_twice(log, "wheel", "*.whl")), 1)
            with self.assertRaisesRegex(RuntimeError, "other bytes"):
                self.module.made_twice(log, "dist", "*.tar.gz")

    def test_a_wrong_name_is_refused(self):
        with self.assertRaises(SystemExit):
            self.check("suites")

    def test_results_are_kept(self):
        self.check("good")
        record = json.loads((self.root / self.module.RECORD).read_text())
        self.assertEqual(record["results"]["good"]["state"], "passed")
        log = self.root / "build/release" / record["files"] / "good.log"
        self.assertIn("+ ./run good one", log.read_text())

    def test_results_outlive_their_commit_and_their_machine(self):
        self.check("good")
        self.commit()
        clone = self.root / "build/clone"
        subprocess.run(["git", "clone", "--quiet", self.root, clone], check=True)
        self.module.ROOT = clone
        self.assertEqual(self.check("--table")[1]["good"][0], "passed")

    def test_a_call_keeps_what_another_one_found_meanwhile(self):
        files = self.module.hash_of_files()
        for name in "one", "two":
            results = self.module.add_to_record(files, self.root, name, {"state": "passed"})
        self.assertEqual(list(results), ["one", "two"])
        self.assertEqual(self.module.read_record("of another state"), {})


if __name__ == "__main__":
    sys.exit(unittest.main())
