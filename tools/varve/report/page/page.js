'use strict';
(() => {
const study = JSON.parse(document.getElementById('study').textContent);

// Words and numbers.
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const digits = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
function size(bytes) {
  let unit = 0, value = bytes;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit++; }
  return unit === 0 ? `${Math.round(value)} B` : `${digits(value)} ${units[unit]}`;
}
const plainSize = (bytes) => size(bytes).replace(/\.0+ /, ' ');
const percent = (share) => `${(100 * share).toFixed(Math.abs(share) < 0.1 ? 2 : 1)} %`;
const gain = (share) => Math.abs(share) < 0.0005 ? '±0 %' : `${share >= 0 ? '+' : '−'}${(100 * Math.abs(share)).toFixed(1)} %`;
const count = (value) => Math.round(value).toLocaleString('en-US');
const speed = (rate) => `${(rate / 1e6).toFixed(0)} MB/s`;
function rate(value) {
  return value >= 1e12 ? `${digits(value / 1e12)} TB/s` : value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`;
}
function duration(seconds) {
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 120) return `${digits(seconds)} s`;
  if (seconds < 7200) return `${digits(seconds / 60)} min`;
  return seconds < 172800 ? `${digits(seconds / 3600)} h` : `${digits(seconds / 86400)} d`;
}
const times = (ratio) => `${ratio.toFixed(2)}×`;
function timesOf(estimate) {
  const half = (estimate.high - estimate.low) / 2;
  return half > 0 ? `${times(estimate.value)} ±${half.toFixed(2)}` : times(estimate.value);
}
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;
const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);
const blockName = (name) => name.replace(/^fixed:(\d+)$/, (_, bytes) => `fixed ${plainSize(+bytes)}`)
    .replace(/^(rabin|gear):(\d+)$/, (_, kind, bytes) => `${kind} ${plainSize(+bytes)}`);
const methodName = (name) => name.replace(/^(fast|balanced|best)$/, 'Varve’s, effort $1').replace('by-type', 'mcrEngine’s, by type').replace('+gzip:6', ' + gzip').replace('gzip:6', 'gzip');
const schemes = ['agnostic', 'agnostic-block', 'aware', 'aware-block'];

// Elements.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== undefined && child !== null) made.append(child);
  return made;
}
const section = (id) => document.getElementById(id);
function say(id, text) { const made = element('p', {}, text); section(id).append(made); return made; }
function papers(id, theirs, ours) {
  section(id).append(element('p', {class: 'papers'}, element('b', {}, 'In the papers: '), theirs, element('br'),
      element('b', {}, 'Here: '), ours));
}
// Columns: [title, cell of a row, is it a number]. What a cell gives is text or an element.
function table(id, columns, rows, title, rowClass) {
  const body = rows.map((row) => element('tr', {class: rowClass ? rowClass(row) : undefined}, columns.map(([, cell, number, kind]) =>
    element('td', {class: number ? 'number' : kind}, cell(row)))));
  const made = element('table', {}, element('thead', {}, element('tr', {}, columns.map(([name, , number]) =>
    element('th', {class: number ? 'number' : undefined, scope: 'col'}, name)))), element('tbody', {}, body));
  if (title) section(id).append(element('h3', {}, title));
  section(id).append(element('div', {class: 'scroll'}, made));
  return made;
}
const shareBar = (share) => element('span', {class: 'share', title: percent(share)}, element('i', {style: `width:${100 * share}%`}));

// Charts. Colours are those of Okabe and Ito, which colour-blind people tell apart; lines differ in their marks, too.
const palette = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#7f7f7f'];
const marks = ['circle', 'rect', 'triangle', 'diamond', 'emptyTriangle', 'emptyDiamond', 'emptyCircle', 'emptyRect'];
const charts = [];
const printing = window.matchMedia('print');
const dark = window.matchMedia('(prefers-color-scheme: dark)');
let forPrint = false;
function theme() {
  const isDark = dark.matches && !forPrint;
  return {ink: isDark ? '#e4e7ea' : '#1d232b', soft: isDark ? '#9aa5b1' : '#5b6570', line: isDark ? '#333b45' : '#dcd9d0',
          panel: isDark ? '#1b2027' : '#ffffff'};
}
function dress(options) {
  const look = theme();
  const axis = (given) => ({nameLocation: 'middle', nameTextStyle: {color: look.soft}, axisLine: {lineStyle: {color: look.soft}},
      splitLine: {lineStyle: {color: look.line}}, ...given, axisLabel: {color: look.soft, hideOverlap: true, ...given.axisLabel}});
  const isList = Array.isArray(options.xAxis);
  return {color: palette, animation: false, textStyle: {fontFamily: 'system-ui, "Noto Sans", "DejaVu Sans", sans-serif'},
      aria: {enabled: true}, ...options, legend: {type: 'scroll', top: 0, textStyle: {color: look.ink}, pageTextStyle: {color: look.ink},
      pageIconColor: look.ink, inactiveColor: look.soft, itemGap: 12, ...options.legend},
      grid: {left: 64, right: 18, top: 44, bottom: 48, ...options.grid},
      tooltip: {confine: true, backgroundColor: look.panel, borderColor: look.line, textStyle: {color: look.ink, fontSize: 13}, ...options.tooltip},
      xAxis: options.xAxis && (isList ? options.xAxis.map(axis) : axis(options.xAxis)), yAxis: options.yAxis && axis(options.yAxis)};
}
function draw(chart) {
  chart.instance?.dispose();
  chart.instance = echarts.init(chart.place, null, {renderer: 'svg'});
  chart.instance.setOption(dress(chart.options()));
}
function drawAll() { for (const chart of charts) draw(chart); }
// `options` is called whenever the chart is drawn anew. `choices`, if any, are [value, text] of a selection.
function chart(row, title, note, options, {tall = false, choices} = {}) {
  const place = element('div', {class: tall ? 'chart tall' : 'chart', role: 'img', 'aria-label': title});
  const state = {title, place, choice: choices?.[0]?.[0]};
  state.options = () => options(state.choice);
  const caption = element('figcaption', {}, title, note && element('small', {}, note));
  if (choices && choices.length > 1) {
    const select = element('select', {'aria-label': `choose what is shown: ${title}`}, choices.map(([value, text]) => element('option', {value}, text)));
    select.addEventListener('change', () => { state.choice = choices[select.selectedIndex][0]; draw(state); });
    caption.prepend(select);
  }
  row.append(element('figure', {}, caption, place));
  charts.push(state);
}
function chartRow(id) { const row = element('div', {class: 'charts'}); section(id).append(row); return row; }
const lineOf = (name, data, index) => ({name, type: 'line', data, symbol: marks[index % marks.length], symbolSize: 8,
    lineStyle: {type: name.includes('-block') ? 'dashed' : 'solid'}});
// An axis of bytes, with ticks at round numbers of its unit.
function byteAxis(most) {
  let step = 1;
  while (step * 5 < most) step *= 2;
  return {type: 'value', interval: step, max: Math.ceil(most * 1.05 / step) * step, axisLabel: {formatter: plainSize}};
}
// Whiskers of a list of [x, low, high] in a bar series of its own.
function whiskers(data) {
  return {type: 'custom', silent: true, z: 5, tooltip: {show: false}, data, encode: {x: 0, y: [1, 2]}, renderItem: (_, api) => {
    const low = api.coord([api.value(0), api.value(1)]), high = api.coord([api.value(0), api.value(2)]);
    const style = {stroke: theme().ink, lineWidth: 1.2};
    const line = (x1, y1, x2, y2) => ({type: 'line', shape: {x1, y1, x2, y2}, style});
    return {type: 'group', children: [line(low[0], low[1], high[0], high[1]), line(low[0] - 4, low[1], low[0] + 4, low[1]),
        line(high[0] - 4, high[1], high[0] + 4, high[1])]};
  }};
}

// The top.
function showHead() {
  const {dedup, advice, contents} = study;
  const newest = contents.sets[contents.sets.length - 1];
  document.getElementById('subject').textContent =
      `${plural(study.sets.length, 'set')} (${study.sets.length > 4 ? `${study.sets[0]} to ${study.sets[study.sets.length - 1]}` : study.sets.join(', ')}), ` +
      `${size(study.raw_bytes)}, ${plural(Math.max(newest.rank_count, 1), 'rank')}, ${newest.formats.join(', ') || 'no files'}`;
  const notes = [];
  if (!study.complete) notes.push('The study was stopped before its end: what is shown is of a part, and some parts are missing.');
  if (dedup && dedup.sampled_share < 1) notes.push(`Duplicates were looked for in a sample of ${percent(dedup.sampled_share)}.`);
  if (study.compression && study.compression.sampled_share < 1)
    notes.push(`Codecs were tried on a sample of ${percent(study.compression.sampled_share)} of the set ${study.compression.set}` +
               (advice ? `, settings on ${percent(advice.trials[0].sampled_share)} of the series.` : '.'));
  const notice = document.getElementById('partial');
  notice.textContent = notes.join(' ');
  notice.hidden = notes.length === 0;

  const best = dedup && dedup.methods.find((each) => each.name === 'fixed:8192' && !each.of_files);
  const rows = [['as it is', study.raw_bytes, '#7f7f7f']];
  if (best) rows.push(['without duplicates', study.raw_bytes * best.total.both.unique_bytes.value / best.total.both.bytes, '#56b4e9']);
  const chosen = advice && advice.trials[advice.chosen];
  if (chosen) rows.push(['and compressed', chosen.stored_bytes.value, '#0072b2']);
  const bars = document.getElementById('bars');
  for (const [what, bytes, colour] of rows) {
    const share = bytes / study.raw_bytes;
    bars.append(element('span', {class: 'what'}, what), element('div', {}, element('i', {style: `width:${100 * share}%;background:${colour}`}),
        element('b', share > 0.3 && colour !== '#56b4e9' ? {class: 'inside'} : {style: share > 0.3 ? 'color:#10202c' : `left:calc(${100 * share}% + 8px)`},
            `${size(bytes)}${bytes < study.raw_bytes ? ` · ${percent(share)}` : ''}`)));
  }
  const tiles = document.getElementById('tiles');
  const tile = (name, value, small) => tiles.append(element('div', {}, element('dt', {}, name), element('dd', {}, value, small && element('small', {}, ` ${small}`))));
  if (chosen) tile('smaller by a factor of', times(chosen.raw_bytes / chosen.stored_bytes.value), 'in a store');
  if (best) tile('duplicates', percent(1 - best.total.both.unique_bytes.value / best.total.both.bytes), 'in 8 KiB chunks');
  const improvement = study.compression?.improvements.find((each) => each.scheme === 'aware' && each.method === 'balanced');
  if (improvement) tile('over gzip of the files', gain(improvement.best), 'ratio, at best');
  const own = study.timing?.configurations.find((each) => each.name === 'Varve'), plain = study.timing?.configurations[0];
  if (own && plain) tile('a checkpoint takes', duration(own.checkpoint_seconds), `not ${duration(plain.checkpoint_seconds)}`);
}

// 1.
function spread(of, text) { return of.least === of.most ? text(of.mean) : `${text(of.least)} to ${text(of.most)}, mean ${text(of.mean)}`; }
function showContents() {
  const {sets, classes} = study.contents;
  table('contents', [['set', (set) => set.label], ['files', (set) => count(set.file_count), true], ['bytes', (set) => size(set.bytes), true],
      ['bytes a file', (set) => spread(set.file_bytes, size), true], ['variables', (set) => count(set.variable_count), true],
      ['a file', (set) => spread(set.variables_per_file, count), true], ['doubles', (set) => percent(set.doubles), true],
      ['singles', (set) => percent(set.singles), true], ['other', (set) => percent(set.other), true], ['skeleton', (set) => percent(set.skeleton), true]], sets);
  papers('contents', 'mcrEngine’s four applications had 0 to 89 % doubles and 0 to 74 % singles, in 13 MB to 4.8 GB a set and 28 to 8,900 variables a file (table III).',
      describeTypes(sets[sets.length - 1]));
  const shown = classes.slice(0, 14).reverse();
  chart(chartRow('contents'), 'The largest variables', `of ${study.sets[study.sets.length - 1]}; equal ones of all ranks together; ${plural(classes.length, 'class').replace('classs', 'classes')} in all`, () => ({
    grid: {left: 250, top: 8, right: 70}, legend: {show: false}, tooltip: {formatter: (at) => `${escapeText(at.name)}<br>${size(at.value)}, ${plural(shown[at.dataIndex].stream_count, 'array')}`},
    xAxis: byteAxis(Math.max(...shown.map((each) => each.bytes))),
    yAxis: {type: 'category', data: shown.map((each) => each.class_key), axisLabel: {width: 235, overflow: 'truncate', hideOverlap: false, interval: 0}},
    series: [{type: 'bar', barMaxWidth: 36, data: shown.map((each) => each.bytes), label: {show: true, position: 'right', color: theme().soft, formatter: (at) => size(at.value)}}]}), {tall: true});
  function describeTypes(set) {
    const kinds = [['doubles', set.doubles], ['singles', set.singles], ['other types', set.other], ['what describes the files', set.skeleton]]
        .filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]).map(([name, share]) => `${percent(share)} ${name}`);
    return `${kinds.join(', ')}; ${spread(set.variables_per_file, count)} ${set.variables_per_file.most === 1 ? 'variable' : 'variables'} a file.`;
  }
}
const escapeText = (text) => String(text).replace(/[&<>"]/g, (byte) => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[byte]);

// 2.
const scopes = [['within', 'within a rank'], ['ranks', 'across ranks'], ['sets', 'across sets'], ['both', 'across both']];
const methodLabel = (method) => blockName(method.name) + (method.of_files ? ', of files' : '');
const left = (of) => of.bytes === 0 ? 1 : of.unique_bytes.value / of.bytes;
function showDedup() {
  const {dedup} = study;
  if (!dedup || dedup.sets_done === 0) { say('dedup', 'Not reached before the study was stopped.'); return; }
  table('dedup', [['chunks', methodLabel], ...scopes.map(([scope, name]) => [name, (method) => percent(left(method.total[scope])), true]),
      ['left of the bytes', (method) => size(method.total.both.unique_bytes.value), true],
      ['mean chunk', (method) => size(method.total.both.bytes / Math.max(method.total.both.chunks, 1)), true],
      ['speed', (method) => method.processor_seconds > 0 ? speed(method.total.both.bytes / method.processor_seconds) : '–', true],
      ...(dedup.methods.some((method) => method.sampled_one_in > 1) ? [['fingerprints kept', (method) => `1 in ${method.sampled_one_in}`, true]] : [])],
      dedup.methods, 'What is left after deduplication');
  const find = (name, files = false) => dedup.methods.find((method) => method.name === name && method.of_files === files);
  const saved = (name, files) => find(name, files) ? percent(1 - left(find(name, files).total.both)) : '–';
  papers('dedup', 'cento’s dumps had 0 to 40 % duplicates; between 4 and 8 KiB blocks there was no observable difference but for one application; ' +
      'Rabin chunks kept a good share at larger sizes (figures 4 to 6).',
      `${saved('fixed:8192')} of the bytes are duplicates in 8 KiB chunks of variables, ${saved('fixed:4096')} in 4 KiB, ${saved('fixed:512')} in 512 B, ` +
      `${saved('rabin:8192')} in Rabin’s and ${saved('gear:8192')} in gear’s.`);
  const row = chartRow('dedup');
  chart(row, 'Left of the bytes', 'by how chunks are cut, and among what equal ones are looked for', () => ({
    tooltip: {trigger: 'axis', valueFormatter: percent}, grid: {bottom: 70, left: 52},
    xAxis: {type: 'category', data: dedup.methods.map(methodLabel), axisLabel: {rotate: 28, interval: 0, hideOverlap: false, fontSize: 11}},
    yAxis: {type: 'value', min: 0, max: 1, axisLabel: {formatter: (value) => `${value * 100} %`}},
    series: scopes.map(([scope, name]) => ({name, type: 'bar', data: dedup.methods.map((method) => left(method.total[scope]))}))}));
  chart(row, 'Unique and duplicate chunks over the series', 'summed up from the first set on, across ranks and sets', (method) => {
    let unique = 0, duplicate = 0;
    const uniques = [], duplicates = [];
    for (const set of method.sets) {
      uniques.push(unique += set.both.unique_chunks.value);
      duplicates.push(duplicate += set.both.duplicate_chunks.value);
    }
    return {tooltip: {trigger: 'axis', valueFormatter: count}, grid: {left: 74},
      xAxis: {type: 'category', data: study.sets.slice(0, method.sets.length), boundaryGap: true},
      yAxis: {type: 'value', axisLabel: {formatter: count}},
      series: [{name: 'unique', type: 'bar', stack: 'all', data: uniques, color: palette[0]}, {name: 'duplicate', type: 'bar', stack: 'all', data: duplicates, color: palette[1]}]};
  }, {choices: [...dedup.methods].sort((a, b) => (b.name === 'fixed:8192' && !b.of_files) - (a.name === 'fixed:8192' && !a.of_files)).map((method) => [method, methodLabel(method)])});
  const cut = dedup.methods.filter((method) => /^(rabin|gear|fixed:8192)/.test(method.name));
  const bins = [...new Set(cut.flatMap((method) => method.sizes.map((bin) => bin.bytes_from)))].sort((a, b) => a - b);
  chart(row, 'Sizes of chunks', 'share of the bytes that lie in chunks of a size', () => ({
    tooltip: {trigger: 'axis', valueFormatter: percent}, legend: {type: 'plain'}, grid: {top: 66},
    xAxis: {type: 'category', data: bins.map((bytes) => `${plainSize(bytes)}–`), name: 'from this size to the double', nameGap: 32},
    yAxis: {type: 'value', axisLabel: {formatter: (value) => `${Math.round(value * 100)} %`}},
    series: cut.map((method, index) => ({name: methodLabel(method), type: 'bar', color: palette[index], data: bins.map((bytes) =>
      (method.sizes.find((bin) => bin.bytes_from === bytes)?.bytes || 0) / Math.max(sum(method.sizes, (bin) => bin.bytes), 1))}))}));
  const changing = dedup.classes.filter((each) => each.bytes > 0);
  if (changing.length === 0) { say('dedup', 'There is one set, and so nothing that could have changed.'); return; }
  const rows = (list) => [[['variables', (each) => each.class_key, false, 'name'], ['bytes of all sets but the first', (each) => size(each.bytes), true],
      ['changed', (each) => percent(each.changed_bytes / each.bytes), true], ['', (each) => shareBar(each.changed_bytes / each.bytes)]], list];
  table('dedup', ...rows(changing.slice(0, 16)), `Which variables change (blocks of ${plainSize(dedup.change_block_bytes)} that the rank did not have before)`);
  const still = sum(changing.filter((each) => each.changed_bytes === 0), (each) => each.bytes);
  say('dedup', `${plural(changing.filter((each) => each.changed_bytes === 0).length, 'class').replace(/classs$/, 'classes')} of variables (${size(still)}) did not change at all` +
      (changing.length > 16 ? `; ${changing.length - 16} smaller classes are in the JSON file.` : '.'));
}

// 3.
const viridis = ['#440154', '#482878', '#3e4a89', '#31688e', '#26828e', '#1f9e89', '#35b779', '#6ece58', '#b5de2b', '#fde725'];
function viridisAt(share) {
  const at = Math.min(Math.max(share, 0), 1) * (viridis.length - 1), index = Math.min(Math.floor(at), viridis.length - 2), part = at - index;
  return [1, 3, 5].map((from) => {
    const [low, high] = [viridis[index], viridis[index + 1]].map((text) => parseInt(text.slice(from, from + 2), 16));
    return Math.round(low + (high - low) * part);
  });
}
function hilbertPoint(order, distance) {
  let x = 0, y = 0;
  for (let level = 0; level < order; level++) {
    const side = 2 ** level, right = (distance >> 1) & 1, upper = (distance ^ right) & 1;
    if (!upper) {
      if (right) { x = side - 1 - x; y = side - 1 - y; }
      [x, y] = [y, x];
    }
    x += side * right; y += side * upper;
    distance = Math.floor(distance / 4);
  }
  return [x, y];
}
const heatMap = {};
function showChanges() {
  const map = study.changes;
  if (!map) { say('changes', 'Not reached before the study was stopped.'); return; }
  if (map.comparisons === 0) { say('changes', 'A heat map of changes needs two sets at least.'); return; }
  const side = 2 ** map.order, cells = map.cell_changes, most = map.comparisons;
  say('changes', `All files one after another, ranks in order, in cells of ${plainSize(map.cell_bytes)}, laid along a Hilbert curve: what is near in the ` +
      `checkpoint is near in the picture. Colour is how often the blocks of a cell (${plainSize(map.block_bytes)}) differed from the set before` +
      (map.compared_one_in > 1 ? `; one block in ${map.compared_one_in} was compared.` : '.'));
  const never = cells.filter((value) => value === 0).length / cells.length;
  const always = cells.filter((value) => value >= most).length / cells.length;
  papers('changes', 'images of whole processes (HPCCG, xNOBEL) had large parts that never changed; POP wrote to few regions; particles and unstructured ' +
      'meshes (VPIC, miniMD, phdMesh) changed nearly everywhere (figure 3).',
      `${percent(never)} of the cells never changed, ${percent(always)} changed in every block and every time.`);
  const canvas = element('canvas', {width: side, height: side, role: 'img', 'aria-label': `heat map of changes: ${percent(never)} of the cells never changed`});
  const positions = new Int32Array(side * side).fill(-1);
  const context = canvas.getContext('2d', {willReadFrequently: true}), image = context.createImageData(side, side);
  cells.forEach((value, cell) => {
    const [x, y] = hilbertPoint(map.order, cell);
    positions[y * side + x] = cell;
    image.data.set([...viridisAt(value / most), 255], 4 * (y * side + x));
  });
  context.putImageData(image, 0, 0);
  const under = element('div', {class: 'under', 'aria-live': 'polite'}, 'Move over the map: here it says what lies under the cursor.');
  const show = (cell) => {
    const others = map.cell_shared_by[cell] - 1;
    under.replaceChildren(element('b', {}, map.labels[map.cell_labels[cell]]), others > 0 ? `and ${plural(others, 'other')} in this cell` : '', element('br'),
        `bytes ${size(cell * map.cell_bytes)} to ${size((cell + 1) * map.cell_bytes)} of the set`, element('br'),
        `changed ${cells[cell].toFixed(2)} of ${plural(most, 'time')}`);
  };
  canvas.addEventListener('mousemove', (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / box.width * side), y = Math.floor((event.clientY - box.top) / box.height * side);
    const cell = x >= 0 && y >= 0 && x < side && y < side ? positions[y * side + x] : -1;
    if (cell >= 0) show(cell); else under.textContent = 'nothing here: the curve has more room than the checkpoint needs';
  });
  Object.assign(heatMap, {canvas, side, pointOf: (cell) => hilbertPoint(map.order, cell)});
  const scale = element('div', {class: 'scale'}, 'never', element('i', {style: `background:linear-gradient(90deg,${viridis.join(',')})`}), most === 1 ? 'changed' : `${most} of ${most} times`);
  const byLabel = new Map();
  cells.forEach((value, cell) => {
    const at = byLabel.get(map.cell_labels[cell]) || {cells: 0, changes: 0};
    at.cells++; at.changes += value;
    byLabel.set(map.cell_labels[cell], at);
  });
  const regions = [...byLabel].map(([label, at]) => ({label: map.labels[label], bytes: at.cells * map.cell_bytes, changes: at.changes / at.cells / most}));
  const hottest = [...regions].sort((a, b) => b.changes * b.bytes - a.changes * a.bytes).slice(0, 10);
  section('changes').append(element('div', {class: 'heat'}, canvas, element('div', {}, scale, under, element('h3', {}, 'Most changed'), element('div', {class: 'scroll', id: 'hottest'}))));
  const list = table('changes', [['where', (each) => each.label, false, 'name'], ['about', (each) => size(each.bytes), true], ['changed', (each) => percent(each.changes), true]], hottest);
  const wrapper = list.parentElement;
  document.getElementById('hottest').append(list);
  wrapper.remove();
}

// 4.
function showCompression() {
  const compression = study.compression;
  if (!compression || compression.methods.length === 0) { say('compression', 'Not reached before the study was stopped.'); return; }
  const {methods, groups, blocks, series} = compression;
  say('compression', `Of ${compression.set}, ${plural(compression.rank_count, 'rank')}, without leaving duplicates out. ` +
      'Agnostic lays whole files one after another; aware lays variables of the same meaning side by side, of all ranks of a group; the block schemes take a block of each in turns.');
  const point = (scheme, method) => methods.find((each) => each.scheme === scheme && each.method === method);
  const pairs = [['gzip:6', 'gzip'], ['zstd:3', 'zstd'], ['by-type', 'mcrEngine’s, by type'], ['shuffle+zstd:1', 'shuffle + zstd'], ['lorenzo+shuffle+zstd:1', 'lorenzo + shuffle + zstd']];
  const row = chartRow('compression');
  chart(row, 'Single and double compression', 'ratio; double: gzip once more (figure 6)', (scheme) => {
    const known = pairs.filter(([name]) => point(scheme, name));
    return {tooltip: {trigger: 'axis', valueFormatter: (value) => value === undefined ? '–' : times(value)}, grid: {left: 48, bottom: 60},
      xAxis: {type: 'category', data: known.map(([, name]) => name), axisLabel: {interval: 0, hideOverlap: false, width: 82, overflow: 'break', fontSize: 11, lineHeight: 13}},
      yAxis: {type: 'value', axisLabel: {formatter: (value) => `${value}×`}},
      series: [['single', (name) => point(scheme, name)], ['double', (name) => point(scheme, `${name}+gzip:6`)]].map(([name, find]) =>
        ({name, type: 'bar', data: known.map(([method]) => find(method)?.ratio.value)}))};
  }, {choices: ['aware', 'aware-block', 'agnostic', 'agnostic-block'].filter((scheme) => methods.some((each) => each.scheme === scheme)).map((scheme) => [scheme, scheme])});
  chart(row, 'Ratio against speed', 'of encoding, one processor', () => ({
    tooltip: {formatter: (at) => `${escapeText(at.data[2])}<br>${at.data[3]}, ${speed(at.data[0])}`}, grid: {left: 48},
    xAxis: {type: 'log', name: 'MB/s', nameGap: 28, axisLabel: {formatter: (value) => String(value / 1e6)}}, yAxis: {type: 'value', scale: true, axisLabel: {formatter: (value) => `${value}×`}},
    series: schemes.map((scheme, index) => ({name: scheme, type: 'scatter', symbol: marks[index], symbolSize: 10, data: methods.filter((each) => each.scheme === scheme && each.encode_bytes_per_second > 0)
      .map((each) => [each.encode_bytes_per_second, each.ratio.value, `${scheme}, ${methodName(each.method)}`, timesOf(each.ratio)])}))}));
  const figure = (title, note, points, x, xAxis, choices) => chart(row, title, note, () => {
    const lines = new Map();
    for (const each of points) {
      const name = each.scheme.startsWith('agnostic') ? `${each.scheme}, gzip` : `${each.scheme}, ${each.method === 'balanced' ? 'Varve' : 'mcrEngine'}`;
      if (!lines.has(name)) lines.set(name, []);
      lines.get(name).push([x(each), each.ratio.value, each.ratio.low, each.ratio.high]);
    }
    const all = [...lines];
    const sampled = points.some((each) => each.ratio.low !== each.ratio.high);
    return {tooltip: {trigger: 'axis', formatter: (list) => `${list[0].axisValueLabel ?? list[0].axisValue}<br>` + list.filter((at) => at.seriesType === 'line')
          .map((at) => `${at.marker}${escapeText(at.seriesName)}: <b>${times(at.data[1])}</b>${at.data[2] !== at.data[3] ? ` (${times(at.data[2])} to ${times(at.data[3])})` : ''}`).join('<br>')},
      grid: {left: 48, top: 62}, legend: {type: 'plain', data: all.map(([name]) => name)}, xAxis, yAxis: {type: 'value', scale: true, axisLabel: {formatter: (value) => `${value}×`}},
      series: [...all.map(([name, data], index) => lineOf(name, data, index)), ...(sampled ? all.map(([, data]) => whiskers(data.map((each) => [each[0], each[2], each[3]]))) : [])]};
  });
  const category = (points, x, name) => ({type: 'category', data: [...new Set(points.map(x))], name, nameGap: 28});
  if (groups.length > 0) figure('Ratio against the size of a group', 'ranks whose data are laid together (figure 7)', groups, (each) => String(each.group_size), category(groups, (each) => String(each.group_size), 'ranks'));
  if (blocks.length > 0) figure('Ratio against the size of a block', 'of the block schemes (figure 8)', blocks, (each) => plainSize(each.block_bytes), category(blocks, (each) => plainSize(each.block_bytes), 'block'));
  if (new Set(series.map((each) => each.set)).size > 1) figure('Ratio over the series', 'one set after another (figure 9)', series, (each) => each.set, category(series, (each) => each.set));
  compareWithPaper(compression, point);
  if (compression.improvements.length > 0) {
    table('compression', [['scheme', (each) => each.scheme], ['codecs', (each) => methodName(each.method)], ['best', (each) => `${gain(each.best)} (${each.best_group_size})`, true],
        ['worst', (each) => `${gain(each.worst)} (${each.worst_group_size})`, true]], compression.improvements, 'Ratio over agnostic with gzip, at the best and the worst size of a group (table IV)');
  }
  const names = [...new Set(['aware', 'agnostic'].flatMap((scheme) => methods.filter((each) => each.scheme === scheme).map((each) => each.method)))];
  const fastest = (name) => point('aware', name) || point('agnostic', name);
  table('compression', [['codecs', (name) => methodName(name)], ...schemes.map((scheme) => [scheme, (name) => point(scheme, name) ? timesOf(point(scheme, name).ratio) : '–', true]),
      ['encoding', (name) => speed(fastest(name).encode_bytes_per_second), true], ['decoding', (name) => speed(fastest(name).decode_bytes_per_second), true]], names,
      'Ratios of all that was tried, and the speed of the aware scheme');
}
function compareWithPaper({groups, blocks, series, improvements}, point) {
  const sentences = [];
  const ratio = (scheme, method) => point(scheme, method)?.ratio.value;
  const doubled = (scheme, method) => ratio(scheme, `${method}+gzip:6`) / ratio(scheme, method) - 1;
  if (ratio('aware', 'by-type+gzip:6')) {
    sentences.push(`a second pass gives agnostic ${gain(doubled('agnostic', 'gzip:6'))}, mcrEngine’s codecs ${gain(doubled('aware', 'by-type'))}, and Varve’s ${gain(doubled('aware', 'lorenzo+shuffle+zstd:1'))}`);
  }
  const gains = improvements.filter((each) => each.scheme === 'aware');
  for (const each of gains) sentences.push(`aware with ${each.method === 'balanced' ? 'Varve’s choice' : 'mcrEngine’s codecs'} is ${gain(each.worst)} to ${gain(each.best)} over agnostic with gzip`);
  const ends = (list, scheme, method) => { const of = list.filter((each) => each.scheme === scheme && each.method === method); return of.length > 1 ? [of[0].ratio.value, of[of.length - 1].ratio.value] : null; };
  const grouped = ends(groups, 'aware-block', 'balanced'), blocked = ends(blocks, 'agnostic-block', 'gzip:6'), over = ends(series, 'aware', 'balanced');
  if (grouped) sentences.push(`from one rank a group to the most, aware-block gains ${gain(grouped[1] / grouped[0] - 1)}`);
  if (blocked) sentences.push(`from the smallest to the largest block, agnostic-block gains ${gain(blocked[1] / blocked[0] - 1)}`);
  if (over && new Set(series.map((each) => each.set)).size > 1) sentences.push(`from the first set to the last, the ratio goes from ${times(over[0])} to ${times(over[1])}`);
  papers('compression', 'a second pass never helps the agnostic schemes and helps the aware ones considerably; aware is 6.6 to 115 % over agnostic, and always over it; larger groups help aware-block most (8 % from 2 to 32 ranks); ' +
      'larger blocks help agnostic-block; the first set of a run compresses best (figures 6 to 9, table IV).', `${sentences.join('; ')}.`);
}

// 5.
function showTime() {
  const timing = study.timing;
  if (!timing || timing.configurations.length === 0) { say('time', 'Not reached before the study was stopped.'); return; }
  const all = timing.configurations, find = (name) => all.find((each) => each.name === name);
  say('time', `Foretold from measured speeds, for ${plural(timing.node_count, 'node')} of ${size(timing.node_bytes)} each (a rank’s share), one processor at work on each, ` +
      `${rate(timing.io_bytes_per_second)} to the file system for all of them, ${rate(timing.network_bytes_per_second)} into the node that gathers a group of ${timing.group_size}, ` +
      `and a failure every ${duration(timing.mean_time_between_failures)}. What many files at once cost a file system beside their bytes is not in it.`);
  const row = chartRow('time');
  for (const [part, title] of [['checkpoint', 'Steps of a checkpoint'], ['restart', 'Steps of a restart']]) {
    const inTurn = ['fetch', 'merge', 'classify and merge', 'cut, look up, compress', 'compress', 'write', 'read', 'decompress', 'separate', 'split', 'lay in place', 'send'];
    const names = [...new Set(all.flatMap((each) => each[part].map((step) => step.name)))].sort((a, b) => inTurn.indexOf(a) - inTurn.indexOf(b));
    chart(row, title, part === 'checkpoint' ? 'figure 12' : 'figure 13', () => ({
      tooltip: {trigger: 'axis', formatter: (list) => `${escapeText(list[0].name)}: <b>${duration(sum(list, (at) => at.value || 0))}</b><br>` +
          list.filter((at) => at.value > 0).map((at) => `${at.marker}${at.seriesName}: ${duration(at.value)}`).join('<br>')},
      grid: {left: 100, right: 34, top: 58, bottom: 32}, legend: {type: 'plain'}, xAxis: {type: 'value', axisLabel: {formatter: duration}, splitNumber: 4},
      yAxis: {type: 'category', inverse: true, data: all.map((each) => each.name)},
      series: names.map((name, index) => ({name, type: 'bar', stack: 'all', color: palette[index % palette.length], data: all.map((each) => each[part].find((step) => step.name === name)?.seconds || 0)}))}));
  }
  table('time', [['', (each) => each.name], ['', (each) => each.description, false, 'wrap'], ['written', (each) => size(each.written_bytes), true], ['checkpoint', (each) => duration(each.checkpoint_seconds), true],
      ['restart', (each) => duration(each.restart_seconds), true], ['if the run waits: every', (each) => duration(each.interval_seconds), true], ['lost', (each) => percent(each.waste), true],
      ['if it goes on: every', (each) => duration(each.asynchronous_interval_seconds), true], ['lost', (each) => percent(each.asynchronous_waste), true]], all);
  const change = (from, to, of) => gain(find(to)[of] / find(from)[of] - 1);
  papers('time', 'aware with aggregation took up to 87 % off a checkpoint without aggregation and compression, and 62 % off a restart, on 15,408 processes (figures 12, 13); asynchronous checkpoints cost a few percent where synchronous ones cost tens (Shahzad et al.).',
      `Aware+Agg instead of NoC+NoAgg is ${change('NoC+NoAgg', 'Aware+Agg', 'checkpoint_seconds')} for a checkpoint and ${change('NoC+NoAgg', 'Aware+Agg', 'restart_seconds')} for a restart` +
      (find('Varve') ? `; Varve is ${change('NoC+NoAgg', 'Varve', 'checkpoint_seconds')} and ${change('NoC+NoAgg', 'Varve', 'restart_seconds')}. ` : '. ') +
      `An asynchronous checkpoint takes ${duration(timing.asynchronous_seconds)} of the run, in memory traffic.`);
}

// 6.
function showAdvice() {
  const advice = study.advice;
  if (!advice) { say('advice', 'Not reached before the study was stopped.'); return; }
  const chosen = advice.trials[advice.chosen];
  say('advice', `Saving ${study.sets.length === 1 ? 'the set' : 'the sets one after another'} would take ${size(chosen.stored_bytes.value)} of ${size(chosen.raw_bytes)} (${times(chosen.raw_bytes / chosen.stored_bytes.value)}). ` +
      `${advice.reasons.map((reason) => reason[0].toUpperCase() + reason.slice(1)).join('. ')}.`);
  table('advice', [['chunks', (trial) => blockName(trial.chunker)], ['scheme', (trial) => trial.scheme], ['effort', (trial) => trial.policy], ['stored', (trial) => size(trial.stored_bytes.value), true],
      ['ratio', (trial) => times(trial.raw_bytes / trial.stored_bytes.value), true], ['speed', (trial) => trial.processor_seconds > 0 ? speed(trial.saved_bytes / trial.processor_seconds) : '–', true],
      ['', (trial) => trial === chosen ? 'chosen' : '']], advice.trials, 'What was tried', (trial) => trial === chosen ? 'chosen' : undefined);
  const row = chartRow('advice');
  if (study.sets.length > 1) {
    chart(row, 'Stored of each set', 'what is new in it, compressed', () => ({tooltip: {trigger: 'axis', valueFormatter: size}, grid: {left: 74}, xAxis: {type: 'category', data: chosen.sets.map((set) => set.label)},
      yAxis: byteAxis(Math.max(...chosen.sets.map((set) => set.raw_bytes))), series: [{name: 'as it is', type: 'bar', color: '#7f7f7f', data: chosen.sets.map((set) => set.raw_bytes)},
        {name: 'stored', type: 'bar', color: palette[0], data: chosen.sets.map((set) => set.stored_bytes.value)}]}));
  }
  const file = element('pre', {id: 'options-file'}, advice.options_file);
  const copy = element('button', {type: 'button'}, 'copy');
  copy.addEventListener('click', () => navigator.clipboard?.writeText(advice.options_file));
  section('advice').append(element('h3', {}, 'For files that a program writes'), element('pre', {}, advice.save_command),
      element('h3', {}, 'For the program itself: varve.toml ', copy), file);
}

showHead(); showContents(); showDedup(); showChanges(); showCompression(); showTime(); showAdvice();
drawAll();
window.addEventListener('resize', () => { for (const each of charts) each.instance.resize(); });
dark.addEventListener('change', drawAll);
const print = (begin) => { if (forPrint !== begin) { forPrint = begin; drawAll(); } };
window.addEventListener('beforeprint', () => print(true));
window.addEventListener('afterprint', () => print(false));
printing.addEventListener('change', (event) => print(event.matches));
window.varveStudy = {study, charts, heatMap};
})();
