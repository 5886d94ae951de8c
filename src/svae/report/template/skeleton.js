// Skeletons move with the cursor of their recording, and move it when they play.
for (const box of document.querySelectorAll(".skeleton")) {
  const time = timelines.get(box.closest("figure").id);
  const bytes = Uint8Array.from(atob(box.dataset.joints), (letter) => letter.charCodeAt(0));
  const joints = new Int16Array(bytes.buffer), parents = box.dataset.parents.split(" ").map(Number);
  const names = box.dataset.names.split("\n"), step = +box.dataset.step, size = 3 * parents.length;
  const canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
  const play = box.querySelector(".play"), slider = box.querySelector("input"), says = box.querySelector("output");
  let frame = 0, angle = 0.5, playing = null, held = null, near = null, spots = [];

  const draw = () => {
    const start = Math.min(Math.floor(frame / step), joints.length / size - 1) * size;
    const ink = getComputedStyle(box).getPropertyValue("--ink"), half = canvas.height / 2.25;
    spots = parents.map((_, i) => {
      const [a, b, c] = joints.subarray(start + 3 * i, start + 3 * i + 3);
      if (Math.min(a, b, c) === -32768) return null;
      const across = (a * Math.cos(angle) + b * Math.sin(angle)) / 32000;
      return [canvas.width / 2 + half * across, canvas.height / 2 - half * c / 32000];
    });
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.lineCap = "round";
    pen.lineWidth = 7;
    pen.strokeStyle = time.colorAt(frame) ?? ink;
    parents.forEach((parent, i) => {
      if (parent < 0 || !spots[i] || !spots[parent]) return;
      pen.beginPath();
      pen.moveTo(...spots[i]);
      pen.lineTo(...spots[parent]);
      pen.stroke();
    });
    pen.fillStyle = ink;
    spots.forEach((spot, i) => {
      if (!spot) return;
      pen.beginPath();
      pen.arc(...spot, i === near ? 8 : 4, 0, 2 * Math.PI);
      pen.fill();
    });
    slider.value = Math.floor(frame);
    says.textContent = (near === null ? "" : `${names[near]}, `) + time.textAt(frame);
  };
  const go = (to) => { frame = to; draw(); };
  const pause = () => { playing = null; play.textContent = "▶"; };

  const run = (now) => {
    if (playing === null) return;
    const [from, to] = time.view(), past = (now - playing) / 1000;
    playing = now;
    // Without a rate, as fast as films.
    let next = frame + past * (time.unit === "s" ? time.rate : 24);
    if (next >= to || next < from) next = from;
    go(next);
    time.point(next);
    requestAnimationFrame(run);
  };
  play.addEventListener("click", () => {
    if (playing !== null) return pause();
    playing = performance.now();
    play.textContent = "⏸";
    requestAnimationFrame(run);
  });
  slider.addEventListener("input", () => { pause(); go(+slider.value + 0.5); time.point(frame); });
  time.panel.addEventListener("pointed", (event) => { if (playing === null) go(event.detail); });

  // A drag turns the figure; the joint under the pointer says its name.
  canvas.addEventListener("pointerdown", (event) => { held = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointerleave", () => { near = null; draw(); });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) { angle += (event.clientX - held) / 100; held = event.clientX; }
    const scale = canvas.width / canvas.clientWidth, x = event.offsetX * scale, y = event.offsetY * scale;
    const far = spots.map((spot) => spot ? Math.hypot(spot[0] - x, spot[1] - y) : Infinity);
    near = Math.min(...far) < 20 ? far.indexOf(Math.min(...far)) : null;
    draw();
  });
  new MutationObserver(draw).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  draw();
}
