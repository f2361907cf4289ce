"""Variables and boxes of them: `cat` and `export`, of sets of a session and of sets of files."""

import ast
import json
import os
import shutil
import struct
import subprocess
import unittest
import zipfile
import zlib

from support import DAMAGED, EXISTS, FAILURE, HAS_HDF5, NOT_FOUND, SAMPLE, SUCCESS, USAGE, ProgramTest

SAVE_ARRAYS = os.environ.get("VARVE_SAVE_ARRAYS", "save_arrays")
RANKS, COLUMNS = 3, 5
ROWS = 2 * RANKS


def read_npy(path):
    """(type, shape, bytes) of a .npy file, as its format is documented."""
    contents = path.read_bytes()
    assert contents[:8] == b"\x93NUMPY\x01\x00", contents[:8]
    length = struct.unpack("<H", contents[8:10])[0]
    assert (10 + length) % 64 == 0 and contents[9 + length:10 + length] == b"\n"
    header = ast.literal_eval(contents[10:10 + length].decode("ascii"))
    assert set(header) == {"descr", "fortran_order", "shape"} and header["fortran_order"] is False
    return header["descr"], header["shape"], contents[10 + length:]


def cells(rows, columns, step=2):
    """What save_arrays puts into these cells of `field`."""
    return [row * COLUMNS + column + step / 10 for row in rows for column in columns]


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


class SessionArrays(ProgramTest):
    def setUp(self):
        super().setUp()
        subprocess.run([SAVE_ARRAYS, self.store, str(RANKS), "2"], check=True, stdin=subprocess.DEVNULL)

    def cat(self, *arguments):
        code, out, err = self.run_program("cat", *arguments)
        self.assertEqual((code, err), (SUCCESS, ""), arguments)
        return out

    def test_cat_gives_what_all_ranks_have_as_one_array(self):
        self.assertEqual(doubles(self.cat("run@2:field")), cells(range(ROWS), range(COLUMNS)))
        self.assertEqual(doubles(self.cat("run@1:field")), cells(range(ROWS), range(COLUMNS), step=1))
        self.assertEqual(doubles(self.cat("run:/field")), cells(range(ROWS), range(COLUMNS)))
        self.assertEqual(self.cat("run@2:header"), b"made by save_arrays")

    def test_cat_gives_a_box(self):
        for box, rows, columns in (("[1:4,2:4]", range(1, 4), range(2, 4)), ("[3]", [3], range(COLUMNS)),
                                   ("[:,4]", range(ROWS), [4]), ("[5:,:1]", [5], [0]), ("[2:2]", [], []),
                                   ("[:]", range(ROWS), range(COLUMNS)), ("[0,0]", [0], [0])):
            with self.subTest(box=box):
                self.assertEqual(doubles(self.cat("run@2:field" + box)), cells(rows, columns))

    def test_cat_gives_what_one_rank_has(self):
        self.assertEqual(self.cat("run@2:particles", "--rank", "2"), struct.pack("<2H", 2, 2))
        self.assertEqual(self.cat("run@2:particles[1:]", "--rank", "2"), struct.pack("<H", 2))
        self.assertEqual(self.cat("run@2:step", "--rank", "1"), struct.pack("<Q", 2))
        self.assertEqual(doubles(self.cat("run@2:field[1]", "--rank", "2")), cells([5], range(COLUMNS)))
        self.assertEqual(self.cat("run@2:step"), struct.pack("<Q", 2), "all ranks have the same")
        err = self.fails(USAGE, "cat", "run@2:particles")
        self.assertIn("rank 0 has not said", err)
        self.assertIn("--rank", err)
        self.assertIn("rank 7", self.fails(NOT_FOUND, "cat", "run@2:particles", "--rank", "7"))
        self.fails(NOT_FOUND, "cat", "run@2:particles", "--rank", str(2**32 + 1))
        self.fails(USAGE, "cat", "run@2:rank-000000.varve", "--variable", "/step", "--rank", "0")

    def test_files_of_the_set_are_still_there(self):
        self.assertEqual(self.cat("run@2:rank-000001.varve")[:8], b"VARVEIMG")
        self.assertEqual(doubles(self.cat("run@2:rank-000001.varve", "--variable", "/field")),
                         cells([2, 3], range(COLUMNS)))

    def test_a_box_that_does_not_fit_is_refused(self):
        for box in ("[7:]", "[:7]", "[6]", "[-1]", "[:-1]", "[::2]", "[1,2,3]", "[]", "[x]", "[4:2]", "[0:1e3]",
                    "[0:18446744073709551616]", "[0:18446744073709551615]", "[" + ":," * 40 + ":]", "[:, 0]"):
            with self.subTest(box=box):
                err = self.fails(USAGE, "cat", "run@2:field" + box)
                self.assertIn("hint: write for each dimension a range", err)
        for name in ("nothing", "nothing[0]", "field[0][1]", "field[0", "[0]"):
            with self.subTest(name=name):
                self.assertIn("no such file, and no such variable", self.fails(NOT_FOUND, "cat", "run@2:" + name))
        self.fails(USAGE, "cat", "run@2:")

    def test_export_writes_npy(self):
        facts = self.facts("export", "run@2:field[1:3,:]", "--to", "part.npy")
        self.assertEqual(facts, {"set": "run@2", "file": "part.npy", "raw_bytes": 80, "arrays": [
            {"variable": "field", "type": "F64LE", "shape": [2, COLUMNS], "bytes": 80}]})
        kind, shape, data = read_npy(self.work / "part.npy")
        self.assertEqual((kind, shape, doubles(data)), ("<f8", (2, COLUMNS), cells([1, 2], range(COLUMNS))))
        for arguments, expected in ((("run:counts[:,3]",), ("<i4", (ROWS,))), (("run:field[2,2]",), ("<f8", ())),
                                    (("run:field[2:2]",), ("<f8", (0, COLUMNS))), (("run:header",), ("|u1", (19,))),
                                    (("run:particles", "--rank", "2"), ("<u2", (2,))),
                                    (("run:step", "--rank", "0"), ("<u8", ()))):
            with self.subTest(arguments=arguments):
                self.varve("export", *arguments, "--force", "--to", "one.npy")
                self.assertEqual(read_npy(self.work / "one.npy")[:2], expected)

    def test_export_replaces_nothing_without_force_and_leaves_no_draft(self):
        self.write("there.npy", b"mine")
        self.assertIn("--force", self.fails(EXISTS, "export", "run:field", "--to", "there.npy"))
        self.assertEqual((self.work / "there.npy").read_bytes(), b"mine")
        self.fails(NOT_FOUND, "export", "run:field", "--to", "missing/there.npy")
        self.fails(USAGE, "export", "run:field", "counts", "--to", "two.npy")
        self.fails(USAGE, "export", "run", "--to", "all.npy")
        self.fails(USAGE, "export", "run", "--to", "all.txt")
        self.fails(USAGE, "export", "run")
        self.fails(NOT_FOUND, "export", "run@9", "--to", "x.npy")
        self.fails(NOT_FOUND, "export", "run:nothing", "--to", "x.npy")
        self.fails(USAGE, "export", "run:field[9]", "--to", "x.npy")
        self.assertEqual(sorted(os.listdir(self.work)), ["store", "there.npy"])
        self.varve("export", "run:field", "--to", "there.npy", "--force")
        self.assertEqual(read_npy(self.work / "there.npy")[1], (ROWS, COLUMNS))

    def test_damage_is_told_and_nothing_is_left(self):
        for path in (self.store / "arenas").rglob("*"):
            if not path.is_file():
                continue
            contents = bytearray(path.read_bytes())
            for at in range(200, len(contents) - 200, 40):
                contents[at] ^= 0x10
            path.chmod(0o644)
            path.write_bytes(contents)
        self.fails(DAMAGED, "cat", "run@2:field")
        self.fails(DAMAGED, "export", "run@2:field", "--to", "x.npy")
        self.assertEqual(os.listdir(self.work), ["store"])

    @unittest.skipUnless(HAS_HDF5, "this build has no HDF5")
    def test_export_writes_hdf5(self):
        out = self.varve("export", "run@2", "--to", "all.h5")
        self.assertRegex(out, r"^exported run@2: 9 arrays, .* to all.h5\n$")
        self.varve("export", "run@2:field[:,1:3]", "counts[0]", "--to", "two.hdf5")
        # What the program itself reads in a file that it saves.
        saved = self.work / "saved"
        saved.mkdir()
        shutil.copy(self.work / "all.h5", saved)
        shutil.copy(self.work / "two.hdf5", saved)
        self.varve("save", saved, "--job", "files", "--step", "1")
        found = {}
        for file in self.facts("show", "files@1", "--variables")["files"]:
            for variable in file["variables"]:
                found[file["path"] + ":" + variable["name"]] = (variable["type"], variable["shape"])
        self.assertEqual(found["all.h5:/field"], ("F64LE", [ROWS, COLUMNS]))
        self.assertEqual(found["all.h5:/counts"], ("I32LE", [ROWS, COLUMNS]))
        self.assertEqual(found["two.hdf5:/field"], ("F64LE", [ROWS, 2]))
        self.assertEqual(found["two.hdf5:/counts"], ("I32LE", [COLUMNS]))
        self.assertEqual(doubles(self.cat("files@1:all.h5:/field[1:3,2:]")), cells([1, 2], range(2, COLUMNS)))
        self.assertEqual(doubles(self.cat("files@1:two.hdf5:/field")), cells(range(ROWS), [1, 2]))
        self.assertEqual(self.cat("files@1:all.h5:/particles/rank-000002"), struct.pack("<2H", 2, 2))

    @unittest.skipUnless(HAS_HDF5 and shutil.which("h5dump"), "needs h5dump")
    def test_h5dump_reads_what_export_wrote(self):
        self.varve("export", "run@2", "--to", "all.h5")
        out = subprocess.run(["h5dump", "-y", "-w", "1", "-d", "/counts", self.work / "all.h5"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
        self.assertIn("H5T_STD_I32LE", out)
        numbers = [int(word.strip(",")) for word in out.split("DATA {")[1].split("}")[0].split()]
        self.assertEqual(numbers, [-n for n in range(ROWS * COLUMNS)])

    @unittest.skipIf(HAS_HDF5, "this build has HDF5")
    def test_without_hdf5_export_says_what_to_do(self):
        self.assertIn(".npy", self.fails(FAILURE, "export", "run@2", "--to", "all.h5"))


class FileArrays(ProgramTest):
    def test_variables_of_files_are_arrays_of_their_own(self):
        saved = self.work / "saved"
        for rank in range(2):
            name = f"out.{rank:04}"
            self.write(saved / name, b"head" + struct.pack("<12h", *range(100 * rank, 100 * rank + 12)))
            self.write(saved / (name + ".varve-layout"), json.dumps(
                {"variables": [{"name": "/T", "type": "i16", "shape": [3, 4], "offset": 4}]}).encode())
        self.varve("save", saved, "--job", "raw", "--step", "7")
        code, out, _ = self.run_program("cat", "raw@7:out.0001:/T[1:,2]")
        self.assertEqual((code, struct.unpack("<2h", out)), (SUCCESS, (106, 110)))
        self.varve("export", "raw@7:out.0000:/T", "--to", "t.npy")
        self.assertEqual(read_npy(self.work / "t.npy"),
                         ("<i2", (3, 4), struct.pack("<12h", *range(12))))
        self.assertEqual(self.run_program("cat", "raw@7:out.0000")[1][:4], b"head")
        self.assertIn("no such variable", self.fails(NOT_FOUND, "cat", "raw@7:out.0001:/U"))

    def test_arrays_that_their_files_have_compressed_come_by_value(self):
        cells = struct.pack("<12h", *range(12))
        header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (3, 4), }"
        header += b" " * (53 + 64 - len(header)) + b"\n"
        saved = self.work / "saved"
        saved.mkdir()
        with zipfile.ZipFile(saved / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("T.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + cells)
        self.write(saved / "b.zarr" / "T" / ".zarray", json.dumps(
            {"zarr_format": 2, "shape": [5, 4], "chunks": [3, 4], "dtype": "<i2", "compressor": {"id": "zlib", "level": 1},
             "filters": None, "order": "C", "fill_value": -1}).encode())
        self.write(saved / "b.zarr" / ".zgroup", b'{"zarr_format": 2}')
        self.write(saved / "b.zarr" / "T" / "0.0", zlib.compress(cells))
        self.varve("save", saved, "--job", "packed", "--step", "1")
        for name, rows in (("a.npz:/T", 3), ("b.zarr:/T", 5)):
            with self.subTest(name=name):
                whole = cells + b"\xff" * (8 * (rows - 3))
                self.assertEqual(self.run_program("cat", f"packed@1:{name}")[:2], (SUCCESS, whole))
                self.assertEqual(self.run_program("cat", f"packed@1:{name}[1:,2]")[1],
                                 b"".join(whole[i:i + 2] for i in range(12, len(whole), 8)))
                self.varve("export", f"packed@1:{name}", "--to", "t.npy", "--force")
                self.assertEqual(read_npy(self.work / "t.npy"), ("<i2", (rows, 4), whole))

    def test_arrays_of_more_cells_than_there_is_room_for_are_refused(self):
        self.write(self.work / "saved" / "T" / ".zarray", json.dumps(
            {"zarr_format": 2, "shape": [2**55], "chunks": [4], "dtype": "<i2", "compressor": None, "filters": None,
             "order": "C", "fill_value": 0}).encode())
        self.write(self.work / "saved" / "T" / "0", struct.pack("<4h", *range(4)))
        self.varve("save", self.work / "saved", "--job", "huge", "--step", "1")
        for arguments in (("huge@1:/T", "--to", "t.npy"),) + ((("huge@1", "--to", "t.h5"),) if HAS_HDF5 else ()):
            self.assertIn("there is room for", self.fails(FAILURE, "export", *arguments))
        self.assertEqual(sorted(os.listdir(self.work)), ["saved", "store"])
        self.varve("export", "huge@1:/T[2:5]", "--to", "t.npy")
        self.assertEqual(read_npy(self.work / "t.npy"), ("<i2", (3,), struct.pack("<3h", 2, 3, 0)))

    @unittest.skipUnless(HAS_HDF5, "this build has no HDF5")
    def test_a_damaged_array_among_others_leaves_no_file_behind(self):
        header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }".ljust(117) + b"\n"
        array = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + struct.pack("<3h", 1, 2, 3)
        saved = self.work / "saved"
        saved.mkdir()
        for name in ("a.npz", "b.npz", "c.npz"):
            with zipfile.ZipFile(saved / name, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("T.npy", array)
        contents = (saved / "b.npz").read_bytes()
        (saved / "b.npz").write_bytes(contents.replace(struct.pack("<I", zlib.crc32(array)), b"\0\1\2\3"))
        self.varve("save", saved, "--job", "packed", "--step", "1")
        self.assertIn("b.npz:/T", self.fails(DAMAGED, "export", "packed@1", "--to", "all.h5"))
        self.assertEqual(sorted(os.listdir(self.work)), ["saved", "store"])
        self.varve("export", "packed@1:a.npz:/T", "c.npz:/T", "--to", "all.h5")

    @unittest.skipUnless(HAS_HDF5, "this build has no HDF5")
    def test_arrays_whose_names_clash_in_a_file_are_both_named(self):
        header = json.dumps({name: {"dtype": "I16", "shape": [2], "data_offsets": [4 * i, 4 * i + 4]}
                             for i, name in enumerate(("a", "a/b", "ab"))}).encode()
        self.write(self.work / "saved" / "t.safetensors", struct.pack("<Q", len(header)) + header + bytes(12))
        self.varve("save", self.work / "saved", "--job", "model", "--step", "1")
        one, two, three = (f"t.safetensors:{name}" for name in ("/a", "/a/b", "/ab"))
        for arguments in ((), (":" + two, one)):
            with self.subTest(arguments=arguments):
                err = self.fails(USAGE, "export", "model@1" + "".join(arguments[:1]), *arguments[1:], "--to", "all.h5")
                self.assertIn(f"'{one}' and '{two}'", err)
        self.assertIn(f"'{one}' and '{one}'", self.fails(USAGE, "export", "model@1:" + one, one, "--to", "all.h5"))
        self.assertEqual(sorted(os.listdir(self.work)), ["saved", "store"])
        self.varve("export", "model@1:" + two, three, "--to", "all.h5")

    @unittest.skipUnless(HAS_HDF5, "this build has no HDF5")
    def test_a_dataset_of_a_real_file_comes_out_as_it_lies_there(self):
        self.varve("save", SAMPLE / "DD0006", "--job", "implosion")
        name = "/Grid00000004/Density"
        whole = self.run_program("cat", "implosion@6:XX1000.cpu0003", "--variable", name)[1]
        self.assertGreater(len(whole), 0)
        self.assertEqual(self.run_program("cat", f"implosion@6:XX1000.cpu0003:{name}")[1], whole)
        self.assertEqual(self.run_program("cat", f"implosion@6:XX1000.cpu0003:{name}[1:2]")[1],
                         whole[len(whole) // 50:len(whole) // 25] if len(whole) % 50 == 0 else b"?")


if __name__ == "__main__":
    unittest.main()
