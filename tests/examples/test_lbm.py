"""The flow solver gives the same result however it is checkpointed, and the right one."""

import json
import os
import struct
import subprocess
import unittest
import zlib

from support import MANY_RANKS, RANK_COUNTS, ExampleTest, found

LBM = os.environ["VARVE_LBM"]
CAVITY = (LBM, "--cells", "24,16,20", "--steps", 60, "--every", 15)
# Of the flow through a square duct: the greatest speed, in units of force · height² / viscosity (White, Viscous Fluid
# Flow, section 3-3.3).
DUCT_SPEED_MAX = 0.0736713


class Modes(ExampleTest):
    def checksum(self, ranks, mode, **changes):
        out = self.run_to_end(f"{mode}-{ranks}", ranks, *CAVITY, "--mode", mode, **changes)
        return found(r"^state after step 60: (\w+)$", out)

    def test_end_in_the_same_state(self):
        for ranks in RANK_COUNTS:
            expected = self.checksum(ranks, "none")
            for mode in ("sync", "async", "lent", "files"):
                with self.subTest(ranks=ranks, mode=mode):
                    self.assertEqual(self.checksum(ranks, mode), expected)

    def test_write_the_same_checkpoints(self):
        for mode in ("sync", "async", "lent"):
            self.checksum(MANY_RANKS, mode)
        steps = [[found["step"] for found in self.varve_facts(f"{mode}-{MANY_RANKS}", "list")["sets"]]
                 for mode in ("sync", "async", "lent")]
        self.assertEqual(steps, [[15, 30, 45, 60]] * 3)
        for mode in ("sync", "async", "lent"):
            self.assertTrue(self.varve_facts(f"{mode}-{MANY_RANKS}", "verify", "--deep")["whole"])

    def test_work_with_a_group_for_each_rank_and_two_slots(self):
        for mode in ("async", "lent"):
            self.assertEqual(self.checksum(MANY_RANKS, mode, VARVE_GROUP="rank", VARVE_WHEN_BUSY="two_slots"),
                             found(r"^state after step 60: (\w+)$",
                                   self.run_to_end("whole", MANY_RANKS, *CAVITY, "--mode", "none")))


class Profile(ExampleTest):
    def test_is_the_same_from_any_number_of_ranks(self):
        profiles = set()
        for ranks in RANK_COUNTS:
            self.run_to_end(f"run-{ranks}", ranks, *CAVITY, "--mode", "sync")
            said = subprocess.run([os.environ["VARVE_PROFILE"], self.work / f"run-{ranks}-store"], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout.splitlines()
            self.assertEqual(said[0], f"# lbm@60, of {ranks} ranks: z, speed along x")
            profiles.add(tuple(said[1:]))
        self.assertEqual(len(profiles), 1)
        speeds = [float(line.split()[1]) for line in profiles.pop()]
        self.assertEqual(len(speeds), 20)
        # The lid draws what is below it along.
        self.assertGreater(speeds[-1], 0.01)
        self.assertEqual(max(speeds), speeds[-1])


class Physics(ExampleTest):
    def test_of_the_channel_is_that_of_a_square_duct(self):
        for ranks in RANK_COUNTS:
            with self.subTest(ranks=ranks):
                self.run_to_end("channel", ranks, LBM, "--flow", "channel", "--cells", "4,15,15", "--reynolds", 10,
                                "--steps", 3000, "--mode", "none", "--json", "channel.json")
                figures = json.loads((self.work / "channel.json").read_text())
                # The solver's force drives a mean speed of 1 between two plates: 12 · viscosity · speed / height².
                self.assertAlmostEqual(figures["speed_max"] / (12 * DUCT_SPEED_MAX), 1, delta=0.002)


def pixels_of(png):
    """Width, height and the bytes of the lines (each with a byte before it that names its filter) of an RGB picture."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    place, data, size = 8, b"", None
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place:place + 8])
        body = png[place + 8:place + 8 + length]
        assert struct.unpack(">I", png[place + 8 + length:place + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
            assert body[8:10] == bytes((8, 2)), "not eight bits of red, green and blue"
        if kind == b"IDAT":
            data += body
        place += 12 + length
    assert kind == b"IEND"
    return (*size, zlib.decompress(data))


class Picture(ExampleTest):
    def test_is_a_png_of_the_flow(self):
        if os.environ.get("VARVE_LBM_PNG") != "1":
            self.skipTest("built without libpng")
        self.run_to_end("picture", MANY_RANKS, *CAVITY, "--mode", "none", "--picture", "flow.png")
        width, height, lines = pixels_of((self.work / "flow.png").read_bytes())
        self.assertEqual((width, height), (24 * 30, 20 * 30))
        self.assertEqual(len(lines), height * (1 + 3 * width))
        self.assertGreater(len(set(lines)), 4)  # of differences

    def test_does_not_depend_on_the_number_of_ranks(self):
        pictures = set()
        for ranks in RANK_COUNTS:
            self.run_to_end("picture", ranks, *CAVITY, "--mode", "none", "--picture", "flow.ppm")
            pictures.add((self.work / "flow.ppm").read_bytes())
        self.assertEqual(len(pictures), 1)
        self.assertGreater(len(set(next(iter(pictures)))), 50, "colours")
        self.assertTrue(pictures.pop().startswith(b"P6\n720 600\n255\n"))


if __name__ == "__main__":
    unittest.main()
