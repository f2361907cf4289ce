"use strict";
// The page of `varve timeline`: draws what the element #timeline holds. Text of the log comes into the page as text only.
(() => {
  const data = JSON.parse(document.getElementById("timeline").textContent);
  const CAUSES = [
    ["copy", "copying", "#0072b2"], ["room", "waiting for room", "#e69f00"], ["ranks", "waiting for other ranks", "#cc79a7"],
    ["store", "waiting for the store", "#d55e00"], ["levels", "waiting for farther levels", "#8c510a"],
    ["restart", "restarting", "#009e73"], ["open", "opening", "#56b4e9"], ["end", "ending", "#999999"],
    ["other", "the calls themselves, and other", "#444444"]];
  const WORK = [
    ["read_seconds", "reading", "#56b4e9"], ["score_seconds", "hashing", "#009e73"], ["encode_seconds", "encoding", "#cc79a7"],
    ["write_seconds", "writing", "#d55e00"], ["sync_seconds", "making durable", "#8c510a"],
    ["starved_seconds", "without a processor", "#999999"]];
  const ARRIVAL = "#0072b2", FAILURE = "#d0021b", RESTART = "#009e73", UNKNOWN = "rgba(128,128,128,0.25)";
  const ROWS_MAX = 500;

  const make = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const seconds = (value) => {
    if (value === null || value === undefined) return "–";
    if (value < 1e-3) return `${(value * 1e6).toPrecision(3)} µs`;
    if (value < 1) return `${(value * 1e3).toPrecision(3)} ms`;
    if (value < 120) return `${value.toPrecision(3)} s`;
    return value < 7200 ? `${(value / 60).toPrecision(3)} min` : `${(value / 3600).toPrecision(3)} h`;
  };
  const size = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    for (; bytes >= 1024 && unit < units.length - 1; ++unit) bytes /= 1024;
    return `${unit === 0 ? bytes : bytes.toPrecision(3)} ${units[unit]}`;
  };
  const time = (at) => at === null ? "–" : new Date(at * 1000).toLocaleString();
  const percent = (share) => `${(share * 100).toFixed(share > 0.999 && share < 1 ? 3 : 1)} %`;
  const legend = (kinds) => make("div", {className: "legend"}, ...kinds.map(([, name, color]) => {
    const mark = make("i");
    mark.style.background = color;
    return make("span", {}, mark, name);
  }));

  const all = data.runs.flatMap((run) => run.checkpoints).filter((one) => one.outcome !== "made before");
  const count = (outcome) => all.filter((one) => one.outcome === outcome).length;
  document.title = `Varve timeline of ${data.job}`;
  document.getElementById("title").textContent = `The checkpoints of ${data.job}`;
  const begin = data.runs.length ? data.runs[0].begin : null, end = data.runs.length ? data.runs.at(-1).last : null;
  document.getElementById("subject").textContent =
    data.runs.length ? `${data.runs.length === 1 ? "1 run" : `${data.runs.length} runs`}, ${time(begin)} to ${time(end)}` : "no run";
  if (data.skipped_lines > 0) {
    const notice = document.getElementById("skipped");
    notice.hidden = false;
    notice.textContent = `${data.skipped_lines} lines of the log make no sense, and are left out.`;
  }
  for (const [name, value] of [
    ["checkpoints", all.length], ["stored", count("stored")], ["failed", count("failed")], ["cut off", count("cut off")], ["skipped", count("skipped")],
    ["program blocked", seconds(data.blocked_seconds)], ["of it attributed", percent(data.attributed_share)]]) {
    document.getElementById("tiles").append(make("div", {}, make("dt", {textContent: name}), make("dd", {textContent: value})));
  }

  const table = (head, rows) => make("div", {className: "scroll"}, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map(([name, kind]) => make("th", {textContent: name, className: kind || ""})))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) =>
      make("td", {textContent: cell, className: head[i][1] || ""})))))));

  const blocked = document.getElementById("blocked");
  const stack = make("div", {className: "stack"});
  for (const [key, name, color] of CAUSES) {
    const part = make("i", {title: `${name}: ${seconds(data.blocked[key])}`});
    part.style.background = color;
    part.style.width = `${data.blocked_seconds > 0 ? 100 * data.blocked[key] / data.blocked_seconds : 0}%`;
    stack.append(part);
  }
  blocked.append(stack, legend(CAUSES), table([["cause"], ["time", "number"], ["share", "number"]],
    CAUSES.map(([key, name]) => [name, seconds(data.blocked[key]),
      data.blocked_seconds > 0 ? percent(data.blocked[key] / data.blocked_seconds) : "–"])));

  // What a run's lanes hold: boxes and marks, each with what is told of it

  const programLane = (run) => {
    const boxes = [];
    const stacked = (from, to, parts, what) => {
      // Known is how long for each cause, not in which order: copying comes last, and waiting for the store after it.
      let at = to;
      for (const [key, name, color] of [...CAUSES].sort((a, b) => order(a[0]) - order(b[0]))) {
        const length = parts[key] || 0;
        if (length <= 0) continue;
        boxes.push({from: at - length, to: at, color, told: `${what}: ${name} ${seconds(length)}`});
        at -= length;
      }
    };
    const order = (key) => ["end", "levels", "store", "copy", "room", "other", "ranks", "restart", "open"].indexOf(key);
    for (const one of run.checkpoints) {
      if (one.end !== null) stacked(one.begin, one.end, one.blocked, `step ${one.step}`);
      if (one.end === null && one.outcome === "cut off") {
        const told = `step ${one.step}, begun ${time(one.begin)}: ${one.why}`;
        boxes.push({from: one.begin, to: run.last, color: UNKNOWN, told}, {from: run.last, to: run.last, cross: true, color: FAILURE, told});
      }
    }
    for (const one of run.waits) stacked(one.begin, one.end, one.blocked, "wait");
    for (const one of run.restarts)
      boxes.push({from: one.at - one.seconds, to: one.at, color: CAUSES[5][2], told: `restart: ${seconds(one.seconds)}`});
    return boxes;
  };
  const storeLane = (run) => {
    const boxes = [];
    for (const one of run.checkpoints) {
      if (one.outcome === "cut off" && one.end !== null) {
        const told = `step ${one.step}: ${one.why}`;
        boxes.push({from: one.begin, to: run.last, color: UNKNOWN, told, thin: true},
          {from: run.last, to: run.last, cross: true, color: FAILURE, told});
      }
      if (one.stored === null && one.outcome !== "failed") continue;
      const total = WORK.reduce((sum, [key]) => sum + (one[key] || 0), 0);
      const from = one.work_begin || one.begin, length = one.work_seconds || 0;
      const told = [`step ${one.step}: ${one.outcome}`, `${size(one.raw_bytes || 0)} → ${size(one.stored_bytes || 0)}`,
        `taken up after ${seconds(one.work_begin ? one.work_begin - one.begin : null)}, at work ${seconds(length)}, ` +
        `in the store after ${seconds(one.stored === null ? null : one.stored - one.begin)}`,
        WORK.map(([key, name]) => `${name} ${seconds(one[key] || 0)}`).join(", "), one.why].filter(Boolean).join("\n");
      if (one.stored !== null) boxes.push({from: one.begin, to: one.stored, color: UNKNOWN, told, thin: true});
      let at = from;
      for (const [key, , color] of WORK) {
        const part = total > 0 ? length * (one[key] || 0) / total : 0;
        if (part > 0) boxes.push({from: at, to: at + part, color, told});
        at += part;
      }
      if (one.outcome === "failed") boxes.push({from: one.end ?? from, to: one.end ?? from, cross: true, color: FAILURE, told});
    }
    return boxes;
  };
  const levelLane = (run, level) => {
    const boxes = [];
    for (const one of run.checkpoints) {
      for (const there of one.levels) {
        if (there.level !== level || there.arrived === null) continue;
        const from = there.begun ?? there.arrived;
        boxes.push({from, to: there.arrived, color: ARRIVAL, told: `step ${one.step} to ${level}: ${seconds(there.arrived - from)}` +
          `, ${size(there.sent_bytes)} sent, there ${seconds(there.arrived - (one.begin ?? from))} after the checkpoint`});
      }
    }
    for (const failure of run.failures) {
      if (failure.level === level)
        boxes.push({from: failure.at, to: failure.at, cross: true, color: FAILURE, told: `${level}, ${time(failure.at)}: ${failure.why}`});
    }
    return boxes;
  };

  const drawRun = (run, number) => {
    const section = make("section");
    const state = {ended: "ended", failed: "ended with an error", open: "goes on, or was killed", "cut off": "was killed"}[run.state];
    const mark = run.state === "failed" || run.state === "cut off" ? (run.state === "failed" ? "state-failed" : "state-cut") : "";
    section.append(make("h2", {textContent: `Run ${number}: ${time(run.begin)}`}),
      make("p", {}, `${run.ranks || "?"} ranks on ${run.host || "?"}; `, make("span", {className: mark, textContent: state}),
        `${run.why ? `: ${run.why}` : ""}; blocked ${seconds(run.blocked_seconds)}, ${percent(run.attributed_share)} of it attributed`));
    for (const one of run.restarts) {
      section.append(make("p", {textContent: one.why ? `The restart failed: ${one.why}` : one.step === null ? "It began anew." :
        `It went on from step ${one.step}, from ${one.from}${one.passed_over ? `; ${one.passed_over} newer ones could not be used` : ""}.`}));
    }
    const levels = [...new Set(run.checkpoints.flatMap((one) => one.levels.map((there) => there.level))
      .concat(run.failures.map((failure) => failure.level).filter(Boolean)))];
    const lanes = [["program", programLane(run)], ["nearest store", storeLane(run)],
      ...levels.map((level) => [level, levelLane(run, level)])];
    const marks = run.restarts.map((one) => ({at: one.at, color: one.why ? FAILURE : RESTART}));
    if (run.state === "cut off") marks.push({at: run.last, color: FAILURE});
    if (run.end !== null) marks.push({at: run.end, color: run.why ? FAILURE : "#999999"});
    const canvas = make("canvas", {className: "lanes"});
    const told = make("p", {className: "told", textContent: "Point at something."});
    section.append(make("figure", {}, canvas, told), legend(CAUSES.slice(0, 6)), legend(WORK));
    const from0 = run.begin ?? 0, to0 = Math.max(from0 + 1e-3, run.last ?? from0);
    let from = from0, to = to0, drag = null;
    const top = 6, laneHeight = 30, nameWidth = 132;
    const draw = () => {
      const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = top + lanes.length * laneHeight + 22;
      canvas.style.height = `${height}px`;
      canvas.width = width * scale;
      canvas.height = height * scale;
      const paint = canvas.getContext("2d");
      const style = getComputedStyle(document.documentElement);
      paint.scale(scale, scale);
      const x = (at) => nameWidth + (at - from) / (to - from) * (width - nameWidth);
      paint.font = "12px system-ui, sans-serif";
      lanes.forEach(([name, boxes], i) => {
        const y = top + i * laneHeight;
        paint.fillStyle = style.getPropertyValue("--bar");
        paint.fillRect(nameWidth, y + laneHeight - 4, width - nameWidth, 1);
        paint.save();
        paint.beginPath();
        paint.rect(nameWidth, y, width - nameWidth, laneHeight);
        paint.clip();
        for (const box of boxes) {
          const left = x(box.from), right = x(box.to);
          if (right < nameWidth - 8 || left > width + 8) continue;
          paint.fillStyle = paint.strokeStyle = box.color;
          if (box.cross) {
            paint.lineWidth = 2;
            paint.beginPath();
            paint.moveTo(left - 5, y + 6); paint.lineTo(left + 5, y + 18);
            paint.moveTo(left - 5, y + 18); paint.lineTo(left + 5, y + 6);
            paint.stroke();
          } else {
            paint.fillRect(left, y + (box.thin ? 10 : 4), Math.max(1, right - left), box.thin ? 5 : 18);
          }
        }
        paint.restore();
        paint.fillStyle = style.getPropertyValue("--ink");
        paint.fillText(name.length > 20 ? `…${name.slice(-19)}` : name, 0, y + 17);
      });
      for (const one of marks) {
        if (one.at < from || one.at > to) continue;
        paint.fillStyle = one.color;
        paint.fillRect(x(one.at) - 1, top, 2, lanes.length * laneHeight);
      }
      paint.fillStyle = style.getPropertyValue("--soft");
      for (let i = 0; i <= 4; ++i) {
        const label = `+${seconds(from - from0 + (to - from) * i / 4)}`;
        paint.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
        paint.fillText(label, nameWidth + (width - nameWidth) * i / 4, height - 6);
      }
      paint.textAlign = "left";
    };
    const timeAt = (event) => {
      const place = canvas.getBoundingClientRect();
      return from + (event.clientX - place.left - nameWidth) / (place.width - nameWidth) * (to - from);
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = timeAt(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
      from = Math.max(from0, at - (at - from) * factor);
      to = Math.min(to0, at + (to - at) * factor);
      if (to - from < 1e-5) to = from + 1e-5;
      draw();
    }, {passive: false});
    canvas.addEventListener("dblclick", () => { from = from0; to = to0; draw(); });
    canvas.addEventListener("pointerdown", (event) => { drag = timeAt(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", (event) => {
      const at = timeAt(event);
      if (drag !== null) {
        const by = Math.min(Math.max(drag - at, from0 - from), to0 - to);
        from += by;
        to += by;
        draw();
        return;
      }
      const lane = lanes[Math.floor((event.clientY - canvas.getBoundingClientRect().top - top) / laneHeight)];
      const slack = 4 * (to - from) / Math.max(1, canvas.clientWidth - nameWidth);
      const under = lane && lane[1].findLast((box) => at >= box.from - slack && at <= box.to + slack);
      told.textContent = under ? under.told : "";
    });
    new ResizeObserver(draw).observe(canvas);
    if (run.failures.length) {
      const shown = [];  // what failed again for the same reason is one row
      for (const one of run.failures) {
        const last = shown.at(-1);
        if (last && last.what === one.what && last.level === one.level && last.why === one.why) ++last.times;
        else shown.push({...one, times: 1});
      }
      section.append(make("h3", {textContent: "What failed"}), table(
        [["first"], ["what"], ["step", "number"], ["times", "number"], ["level"], ["why", "wrap"]],
        shown.slice(-ROWS_MAX).map((one) => [time(one.at), one.what, one.step ?? "", one.times, one.level, one.why])));
    }
    const rows = run.checkpoints.slice(-ROWS_MAX);
    const details = make("details", {}, make("summary", {textContent: rows.length < run.checkpoints.length
      ? `The last ${rows.length} of ${run.checkpoints.length} checkpoints` : `All ${rows.length} checkpoints`}));
    details.append(table([["step", "number"], ["began"], ["outcome"], ["blocked", "number"], ["copying", "number"], ["bytes", "number"],
      ["stored", "number"], ["in the store after", "number"], ["levels"]],
    rows.map((one) => [one.step, time(one.begin), one.outcome, seconds(one.blocked_seconds), seconds(one.blocked.copy), size(one.bytes),
      one.stored_bytes === undefined ? "–" : size(one.stored_bytes), one.stored === null ? "–" : seconds(one.stored - one.begin),
      one.levels.map((there) => `${there.level}: ${there.arrived !== null ? seconds(there.arrived - (one.begin ?? there.arrived))
        : there.given_up !== null ? "given up" : there.failures ? "failed" : "on its way"}`).join("; ")])));
    section.append(details);
    return section;
  };
  data.runs.forEach((run, i) => document.getElementById("runs").append(drawRun(run, i + 1)));
})();
