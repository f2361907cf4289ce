#!/usr/bin/env python3
"""How small checkpoints of programs that nobody changed become, beside gzip, zstd, xz and restic.

    bench/apps.py --varve build/varve [--apps ../shared/apps] [--data build/apps] [NAME...]

APPS has a folder for each program, whose make.sh or make.py makes a series of sets under $APPS_DATA/NAME (a folder of
folders, each a set), or several series, if that has folders of series. What is not in DATA yet is made first; NAME
chooses programs. gzip -6, zstd -3 and xz -6 take each set as a tar file; `zstd -19 --long=27` takes the series as one;
restic and Varve have one store for a series. Every set that Varve restores is compared with the saved one. Balanced is
to be no larger than the smallest of gzip, zstd -3 and restic, best no more than 1.02 times the smallest of xz and
`zstd -19 --long=27`: a row where that is not so is marked. Processor seconds are those of Varve's saves. Only Python's
standard library is used.
"""

import argparse
import filecmp
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

MEGABYTE = 1e6


def make(apps, data, names):
    """Makes the series of the programs that DATA lacks."""
    for folder in sorted(apps.iterdir()):
        script = next((folder / name for name in ('make.sh', 'make.py') if (folder / name).exists()), None)
        if script is None or (names and folder.name not in names) or any(data.glob(folder.name + '*')):
            continue
        print(f'making {folder.name}', file=sys.stderr)
        command = ['bash' if script.suffix == '.sh' else '/usr/bin/python3', script]
        made = subprocess.run(command, env=os.environ | {'APPS_DATA': str(data)}, cwd=folder, capture_output=True)
        if made.returncode != 0:
            print(f'skipped {folder.name}: {script} failed: {made.stderr.decode(errors="replace")[-300:]}', file=sys.stderr)


def series_of(data, names):
    """(name, sets) of each series: a folder whose folders contain files."""
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        if names and not any(folder.name.startswith(name) for name in names):
            continue
        below = sorted(path for path in folder.iterdir() if path.is_dir())
        has_series = all(any(inner.is_dir() for inner in path.iterdir())
                         and not any(inner.is_file() for inner in path.iterdir()) for path in below)
        if has_series and folder.name == 'formats':
            for path in below:
                yield f'{folder.name}/{path.name}', sorted(inner for inner in path.iterdir() if inner.is_dir())
        elif below:
            yield folder.name, below


def size_through(command, folders):
    """The bytes that a compressor makes of a tar file of these folders."""
    tar = subprocess.Popen(['tar', '-C', folders[0].parent, '-cf', '-'] + [path.name for path in folders],
                           stdout=subprocess.PIPE)
    packed = subprocess.Popen(command, stdin=tar.stdout, stdout=subprocess.PIPE)
    size = 0
    while block := packed.stdout.read(1 << 20):
        size += len(block)
    if packed.wait() != 0 or tar.wait() != 0:
        raise RuntimeError(f'{command[0]} failed')
    return size


def size_of(folder):
    return sum(path.lstat().st_size for path in folder.rglob('*') if path.is_file() and not path.is_symlink())


def same(left, right):
    compared = filecmp.dircmp(left, right)
    if compared.left_only or compared.right_only or compared.funny_files:
        return False
    equal = filecmp.cmpfiles(left, right, compared.common_files, shallow=False)
    return not equal[1] and not equal[2] and all(same(left / name, right / name) for name in compared.common_dirs)


def varve(program, effort, sets, work):
    """(stored bytes, processor seconds of the saves, whether all came back)."""
    store = work / effort
    run = lambda *arguments: subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
    run('init', store)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for step, folder in enumerate(sets):
        run('save', folder, '--store', store, '--job', 'series', '--step', str(step), '--effort', effort)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    identical = True
    for step, folder in enumerate(sets):
        back = work / 'back'
        run('restore', f'series@{step}', back, '--store', store)
        identical = identical and same(folder, back)
        shutil.rmtree(back)
    return size_of(store), seconds, identical


def restic(sets, work):
    environment = os.environ | {'RESTIC_PASSWORD': 'x', 'RESTIC_CACHE_DIR': str(work / 'cache')}
    run = lambda *arguments, cwd=None: subprocess.run(['restic', '-q', '-r', work / 'restic', *arguments], check=True,
                                                      env=environment, cwd=cwd, stdout=subprocess.DEVNULL)
    run('init')
    for folder in sets:
        run('backup', '.', cwd=folder)
    return size_of(work / 'restic')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--varve', type=pathlib.Path, required=True)
    options.add_argument('--apps', type=pathlib.Path, default=pathlib.Path('../shared/apps'))
    options.add_argument('--data', type=pathlib.Path, default=pathlib.Path('build/apps'))
    options.add_argument('names', nargs='*', metavar='NAME')
    options = options.parse_args()
    program, data = options.varve.resolve(), options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    if options.apps.is_dir():
        make(options.apps.resolve(), data, options.names)
    columns = ['raw', 'gzip -6', 'zstd -3', 'restic', 'balanced', 'xz -6', 'zstd -19 --long', 'best']
    print('| series | ' + ' | '.join(columns) + ' | processor s | |')
    print('| --- ' * (len(columns) + 3) + '|')
    lost = 0
    for name, sets in series_of(data, options.names):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            sizes = {'raw': sum(size_of(folder) for folder in sets)}
            for column, command in (('gzip -6', ['gzip', '-6c']), ('zstd -3', ['zstd', '-3qc']),
                                    ('xz -6', ['xz', '-6cT1'])):
                sizes[column] = sum(size_through(command, [folder]) for folder in sets)
            sizes['zstd -19 --long'] = size_through(['zstd', '-19', '--long=27', '-qc'], sets)
            if shutil.which('restic'):
                sizes['restic'] = restic(sets, work)
            seconds, identical = [], True
            for effort in ('balanced', 'best'):
                sizes[effort], spent, came_back = varve(program, effort, sets, work)
                seconds.append(f'{spent:.2f}')
                identical = identical and came_back
        of_balanced = min(sizes[column] for column in ('gzip -6', 'zstd -3', 'restic') if column in sizes)
        of_best = min(sizes['xz -6'], sizes['zstd -19 --long'])
        words = []
        if not identical:
            words.append('**not identical**')
        if sizes['balanced'] > of_balanced:
            words.append(f'balanced {sizes["balanced"] / of_balanced:.2f} times')
        if sizes['best'] > 1.02 * of_best:
            words.append(f'best {sizes["best"] / of_best:.2f} times')
        lost += bool(words)
        cells = [f'{sizes[column] / MEGABYTE:.1f}' if column in sizes else '–' for column in columns]
        print(f'| {name} | ' + ' | '.join(cells) + f' | {", ".join(seconds)} | {", ".join(words)} |', flush=True)
    return 1 if lost else 0


if __name__ == '__main__':
    sys.exit(main())
