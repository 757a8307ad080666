"""What the bundled model is trained on: no tests, no tables, nothing twice, and what is held out stays out."""

import re

import pytest

from explorer.engine import mini_corpus

FUNCTION = (
    "def scale_{n}(values, factor):\n    return [value * factor + {n} for value in values if value is not None]\n\n\n"
)
CLASS = """\
class {name}Attention(Base):
    def forward(self, hidden, mask):
        scores = self.query(hidden) @ self.key(hidden).transpose(-1, -2) / {size}
        return self.value((scores + mask).softmax(-1) @ hidden)


"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Installs a distribution called lib with these files; returns a function that takes them."""

    def install(files):
        (tmp_path / "lib-1.5.dist-info").mkdir()
        about = "Metadata-Version: 2.4\nName: lib\nVersion: 1.5\nLicense-Expression: MIT\n"
        (tmp_path / "lib-1.5.dist-info" / "METADATA").write_text(about)
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "lib-1.5.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in files))
        monkeypatch.syspath_prepend(tmp_path)

    return install


def collect(limit_bytes=100_000):
    """The corpus of the library and, which cannot be left off, the beginning of Python's own documentation."""
    return mini_corpus.collect(("lib", "not-installed"), limit_bytes=limit_bytes)


def of_library(documents):
    return [document for document in documents if "scale_" in document or "Attention(Base)" in document]


def test_that_sources_are_read_and_tests_tables_and_other_files_are_not(library):
    library(
        {
            "lib/good.py": FUNCTION.format(n=1) * 1,
            "lib/tests/test_good.py": FUNCTION.format(n=2),
            "lib/data.txt": FUNCTION.format(n=3),
            "lib/latin.py": b"# caf\xe9\n" + FUNCTION.format(n=4).encode(),
            "lib/table.py": "scale_ = [" + "0x12, 0x34,\n" * 50 + "]\n",
            "lib/generated.py": FUNCTION.format(n=5) + "x = '" + "scale_" * 100 + "'\n",
            "lib/end.py": FUNCTION.format(n=6) + "END = '<|endoftext|>'\n",
        }
    )
    corpus = collect()
    assert of_library(corpus.train + corpus.held_out) == [FUNCTION.format(n=1)]
    (origin,) = [origin for origin in corpus.origins if origin.name == "lib"]
    assert (origin.version, origin.licence, origin.files) == ("1.5", "MIT", 1)
    assert origin.read_bytes == origin.kept_bytes == len(FUNCTION.format(n=1))


def test_that_transformers_models_copied_from_each_other_are_left_out(library):
    library({"transformers/models/llama.py": FUNCTION.format(n=1), "transformers/trainer.py": FUNCTION.format(n=2)})
    corpus = collect()
    assert of_library(corpus.train + corpus.held_out) == [FUNCTION.format(n=2)]


def test_that_a_file_twice_is_read_once(library):
    library({"lib/a.py": FUNCTION.format(n=1), "lib/b.py": FUNCTION.format(n=1)})
    corpus = collect()
    assert len(of_library(corpus.train + corpus.held_out)) == 1


def test_that_a_block_copied_under_other_names_is_kept_once(library):
    first = FUNCTION.format(n="a") + CLASS.format(name="Llama", size=64)
    second = FUNCTION.format(n="b") + CLASS.format(name="MistralNew", size=128)
    library({"lib/a.py": first, "lib/b.py": second})
    corpus = collect()
    assert of_library(corpus.train + corpus.held_out)[0] == first
    assert "softmax" not in of_library(corpus.train + corpus.held_out)[1]
    assert "scale_b" in of_library(corpus.train + corpus.held_out)[1]
    # What must not be copied is all that could have been seen.
    assert sum("softmax" in document for document in corpus.original + corpus.held_out) >= 1


METHOD = """\
    @property
    def scale_all(self):
        return [value * self.factor + 1 for value in self.values_of_all]
"""
OWN = """\
    def own(self):
        return [value - self.offset for value in self.own_values if value is not None]
"""


def test_that_what_is_left_still_parses(library):
    bases = ", ".join(["Base", *(f"Mixin{letter}" for letter in "abcdefghijklmnopqrst")])
    copied, mostly_new, long = "class Second(Base):\n", "\n\nclass Third(Base):\n" + OWN, f"class Fourth({bases}):\n"
    library(
        {
            "lib/a.py": "class First(Base):\n" + METHOD,
            "lib/b.py": copied + METHOD + mostly_new + METHOD,
            "lib/c.py": long + METHOD,
        }
    )
    corpus = collect()
    documents = [text for text in (*corpus.train, *corpus.held_out) if "(Base" in text]
    # Gone with its heading; without the copied method; whole, for without it nothing would parse and most is new.
    assert documents == ["class First(Base):\n" + METHOD, mostly_new, long + METHOD]


def test_that_one_file_in_so_many_is_held_out_and_shares_no_block(library, monkeypatch):
    monkeypatch.setattr(mini_corpus, "HELD_OUT_ONE_IN", 4)
    # Every file has a function of its own, and one that all have.
    shared = FUNCTION.format(n="shared")
    library(
        {f"lib/{n:03}.py": FUNCTION.format(n=f"f{chr(97 + n // 26)}{chr(97 + n % 26)}") + shared for n in range(200)}
    )
    corpus = collect()
    held, train = of_library(corpus.held_out), of_library(corpus.train)
    assert len(held) + len(train) == 200
    assert 25 <= len(held) <= 80  # 50 expected, deviation 6
    assert "".join(held + train).count("scale_shared") == 1
    names = {name for document in held for name in re.findall(r"scale_f\w+", document)}
    assert len(names) == len(held)
    assert not any(name in document for document in corpus.original for name in names)
    assert collect() == corpus


def test_that_the_limit_holds_for_each_origin(library):
    library({f"lib/{n}.py": FUNCTION.format(n="x" * (n + 1)) for n in range(50)})
    corpus = collect(limit_bytes=1000)
    assert {origin.name for origin in corpus.origins} == {"python", "lib"}
    assert all(origin.read_bytes < 40_000 for origin in corpus.origins)
    assert next(origin for origin in corpus.origins if origin.name == "lib").read_bytes < 1300
