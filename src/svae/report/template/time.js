// One time axis for all rows of a recording: a cursor that reads values, and zoom.
const LEAST = 4; // frames that can be seen at most enlarged
const nice = (value) => {
  const size = Math.abs(value);
  const text = size >= 1000 ? value.toFixed(0) : size === 0 ? "0" : String(+value.toPrecision(3));
  return text.replace("-", "−");
};

// The points of a line, which are drawn relative to one another: frames, and depths from 0 to 1000.
const pointsOf = (line) => {
  const points = [];
  for (const piece of line.getAttribute("d").split("M").slice(1)) {
    const [head, tail = ""] = piece.split(/[lmz]/);
    let [x, y] = head.split(/[ ,]+/).map(Number);
    points.push([x, y]);
    const steps = piece.includes("l") ? tail.match(/-?[\d.]+/g) ?? [] : [];
    for (let i = 0; i + 1 < steps.length; i += 2) points.push([x += +steps[i], y += +steps[i + 1]]);
  }
  return points;
};
const nearest = (points, x) => {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? points[low - 1] : points[low];
};

// Reads names and values from an image whose colours run along a palette.
const pixelsOf = (image) => {
  const { names, ends, unit, palette } = image.dataset;
  const channels = names.split("\n"), scales = ends.split(" ").map(Number);
  const levels = new Map(palette.match(/.{6}/g).map((color, level) => [parseInt(color, 16), level / 254]));
  const picture = new Image();
  picture.src = image.getAttribute("href");
  let data = null;
  const draw = () => {
    const pen = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight).getContext("2d");
    pen.drawImage(picture, 0, 0);
    data = pen.getImageData(0, 0, picture.naturalWidth, picture.naturalHeight);
  };
  return (across, down) => {
    if (!picture.complete) return null;
    if (!data) draw();
    const at = 4 * (Math.floor(down * data.height) * data.width + Math.min(Math.floor(across * data.width), data.width - 1));
    const [red, green, blue, seen] = data.data.subarray(at, at + 4), channel = Math.floor(down * channels.length);
    const level = levels.get((red << 16) + (green << 8) + blue);
    const [low, high] = scales.slice(2 * channel, 2 * channel + 2);
    const text = seen && level !== undefined ? nice(low + level * (high - low)) + unit : "–";
    return { name: channels[channel].slice(0, 14), text };
  };
};

const tickSize = (length) => {
  const power = 10 ** Math.floor(Math.log10(length / 8));
  return power * [1, 2, 5, 10].find((factor) => factor * power * 10 >= length);
};

const timelines = new Map();
for (const panel of document.querySelectorAll(".panel")) {
  const frames = +panel.dataset.frames, rate = +panel.dataset.rate;
  const left = +panel.dataset.left, plot = +panel.dataset.plot;
  const inner = panel.querySelector("svg.time"), depth = inner.viewBox.baseVal.height;
  const line = panel.querySelector("line.cursor"), text = panel.querySelector("text.cursor");
  const choice = panel.querySelector(".choice"), ticks = panel.querySelector(".ticks");
  const whole = panel.closest("figure").querySelector(".whole");
  const names = [...panel.querySelectorAll(".inside")];
  const spans = names.map((name) => [+name.dataset.start, +name.dataset.stop]);
  const ends = new Map([...panel.querySelectorAll(".range[data-row]")].map((end) => [end.dataset.row, end]));
  const usual = new Map([...ends].map(([row, end]) => [row, end.textContent]));
  let lines = null; // read when first needed
  let view = [0, frames];

  const place = (frame) => left + plot * (frame - view[0]) / (view[1] - view[0]);
  const frameAt = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(panel.getScreenCTM().inverse());
    const share = Math.min(Math.max((point.x - left) / plot, 0), 1);
    return view[0] + share * (view[1] - view[0]);
  };
  const timeText = (frame) => panel.dataset.unit === "s" ? `${(frame / rate).toFixed(2)} s` : String(Math.floor(frame));

  const zoom = (start, stop) => {
    const length = Math.min(Math.max(stop - start, Math.min(LEAST, frames)), frames);
    const from = Math.min(Math.max((start + stop - length) / 2, 0), frames - length);
    view = [from, from + length];
    panel.dataset.from = view[0];
    panel.dataset.to = view[1];
    inner.setAttribute("viewBox", `${from} 0 ${length} ${depth}`);
    whole.hidden = length === frames;
    names.forEach((name, i) => {
      const a = Math.max(spans[i][0], view[0]), b = Math.min(spans[i][1], view[1]);
      const room = plot * (b - a) / length >= 7 * name.textContent.length + 6;
      name.setAttribute("visibility", room ? "visible" : "hidden");
      if (room) name.setAttribute("x", place((a + b) / 2));
    });
    const step = tickSize(length / rate);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    ticks.textContent = "";
    for (let i = Math.ceil(from / rate / step - 1e-9) || 0; i * step * rate <= view[1] + 1e-9; i++) {
      const x = place(i * step * rate);
      const mark = ticks.appendChild(document.createElementNS(panel.namespaceURI, "line"));
      for (const [key, value] of Object.entries({ x1: x, x2: x, y1: 4, y2: 9 })) mark.setAttribute(key, value);
      const label = ticks.appendChild(document.createElementNS(panel.namespaceURI, "text"));
      label.setAttribute("class", "tick");
      label.setAttribute("x", x);
      label.setAttribute("y", 22);
      label.textContent = (i * step).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    }
  };

  const point = (frame) => {
    lines ??= [...inner.querySelectorAll("path[data-low]")].map((path) => ({
      points: pointsOf(path), low: +path.dataset.low, high: +path.dataset.high,
      end: ends.get(path.closest("[data-row]").dataset.row),
    }));
    const x = place(frame);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    text.setAttribute("x", x);
    text.textContent = timeText(Math.min(frame, frames - 1e-6));
    for (const { points, low, high, end } of lines) {
      const found = points.length ? nearest(points, frame) : null;
      const near = found && Math.abs(found[0] - frame) <= Math.max(1, 2 * frames / points.length);
      end.textContent = near ? nice(high - (high - low) * found[1] / 1000) : "–";
    }
    names.forEach((name, i) => {
      if (spans[i][0] <= frame && frame < spans[i][1]) {
        ends.get(name.closest("[data-row]").dataset.row).textContent = name.textContent;
      }
    });
    panel.classList.add("pointed");
  };

  // The value under the pointer, from the colour of an image's pixel.
  const image = inner.querySelector("image[data-palette]");
  const end = image && ends.get(image.closest("[data-row]").dataset.row);
  let pixels = null;
  const readImage = (event) => {
    pixels ??= pixelsOf(image);
    const box = image.getBoundingClientRect();
    const down = (event.clientY - box.top) / box.height, across = frameAt(event) / image.width.baseVal.value;
    const value = down >= 0 && down < 1 ? pixels(across, down) : null;
    end.textContent = "";
    if (value === null) return;
    const middle = down * image.height.baseVal.value;
    [[value.name, -2, "muted-text"], [value.text, 11, ""]].forEach(([words, y, kind]) => {
      const line = end.appendChild(document.createElementNS(panel.namespaceURI, "tspan"));
      line.setAttribute("x", end.getAttribute("x"));
      line.setAttribute("y", middle + y);
      line.setAttribute("class", kind);
      line.textContent = words;
    });
  };
  const leave = () => {
    panel.classList.remove("pointed");
    for (const [row, end] of ends) end.textContent = usual.get(row);
  };

  let dragged = null;
  panel.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") dragged = { x: event.clientX, frame: frameAt(event), far: false };
  });
  panel.addEventListener("pointermove", (event) => {
    const frame = frameAt(event);
    point(frame);
    if (image) readImage(event);
    panel.dispatchEvent(new CustomEvent("pointed", { detail: frame }));
    if (!dragged) return;
    if (Math.abs(event.clientX - dragged.x) > 5 && !dragged.far) {
      dragged.far = true;
      panel.setPointerCapture(event.pointerId);
    }
    const [a, b] = [dragged.frame, frame].sort((x, y) => x - y);
    choice.setAttribute("x", place(a));
    choice.setAttribute("width", dragged.far ? place(b) - place(a) : 0);
  });
  const drop = (event) => {
    choice.setAttribute("width", 0);
    if (dragged?.far) {
      const [a, b] = [dragged.frame, frameAt(event)].sort((x, y) => x - y);
      zoom(a, b);
      // The click that ends a drag is not meant for a state.
      const swallow = (click) => click.stopPropagation();
      addEventListener("click", swallow, { capture: true, once: true });
      setTimeout(() => removeEventListener("click", swallow, { capture: true }));
    }
    dragged = null;
  };
  panel.addEventListener("pointerup", drop);
  panel.addEventListener("pointercancel", () => { dragged = null; choice.setAttribute("width", 0); });
  panel.addEventListener("pointerleave", leave);
  panel.addEventListener("dblclick", () => zoom(0, frames));
  // The wheel alone scrolls the page.
  panel.addEventListener("wheel", (event) => {
    const turn = event.deltaY || event.deltaX;
    if (!(event.ctrlKey || event.metaKey || event.shiftKey) || !turn) return;
    event.preventDefault();
    const middle = frameAt(event), factor = turn > 0 ? 1.25 : 0.8;
    zoom(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
  }, { passive: false });
  whole.addEventListener("click", () => zoom(0, frames));
  const colorAt = (frame) => {
    const i = names.findIndex((name, i) => name.dataset.state && spans[i][0] <= frame && frame < spans[i][1]);
    return i < 0 ? null : inner.querySelector(`path.s${names[i].dataset.state}[fill]`).getAttribute("fill");
  };
  timelines.set(panel.closest("figure").id, {
    panel, rate, unit: panel.dataset.unit, zoom, point, colorAt, textAt: timeText, view: () => view,
  });
}

// A link to a segment shows it, with as much again on either side.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-zoom]");
  if (!link) return;
  const [start, stop] = link.dataset.zoom.split(" ").map(Number), beside = Math.max(stop - start, 5);
  timelines.get(link.hash.slice(1))?.zoom(start - beside, stop + beside);
});
