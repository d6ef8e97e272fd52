(() => {
  'use strict';

  // A click on a head sorts by its column; a second one turns it round. What is not known stays last.
  for (const table of document.querySelectorAll('table.sortable')) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const of = row => row.cells[column].dataset.sort || '';
      if (body.rows.length < 2 || ![...body.rows].some(of)) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const falling = head.ariaSort ? head.ariaSort === 'ascending' : head.classList.contains('number');
        heads.forEach(other => { other.ariaSort = null; });
        head.ariaSort = falling ? 'descending' : 'ascending';
        const compare = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
        const rows = [...body.rows].sort((p, q) => {
          const [a, b] = [of(p), of(q)];
          if (!a || !b) return !a - !b;
          return falling ? compare(b, a) : compare(a, b);
        });
        body.append(...rows);
      });
    });
  }

  const number = value => {
    const size = Math.abs(value);
    return String(+value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2));
  };
  const seconds = value => {
    const size = Math.abs(value);
    if (size === 0) return '0 s';
    const [worth, unit] = size >= 1 ? [1, 's'] : size >= 1e-3 ? [1e-3, 'ms'] : size >= 1e-6 ? [1e-6, 'us'] : [1e-9, 'ns'];
    return number(value / worth) + ' ' + unit;
  };

  for (const plot of document.querySelectorAll('.plot[data-rows]')) {
    const svg = plot.querySelector('svg.area');
    const rows = [...svg.querySelectorAll('g[data-name]')];
    const whole = [0, svg.viewBox.baseVal.width];
    const names = (plot.dataset.names || '').split(',');
    const [from, to] = [+plot.dataset.from, +plot.dataset.to];
    let view = whole;
    const moment = column => from + (to - from) * column / whole[1];

    const readout = document.createElement('output');
    readout.className = 'readout';
    readout.textContent = '\u00a0';
    plot.after(readout);
    const cells = new Map();
    const said = (row, column) => {
      if (row.dataset.cells !== undefined) {
        if (!cells.has(row)) cells.set(row, row.dataset.cells.split(','));
        const share = cells.get(row)[Math.floor(column)];
        return share ? `${number(share / 10)} % ${plot.dataset.what}` : 'not sampled';
      }
      if (!cells.has(row)) {
        let end = 0;
        cells.set(row, row.dataset.runs.split(',').map(run => {
          const [length, name] = run.split(':');
          return { start: end, end: end += +length, name };
        }));
      }
      const run = cells.get(row).find(r => column < r.end);
      if (!run) return '';
      const long = seconds(moment(run.end) - moment(run.start));
      return run.name === undefined ? `outside MPI for ${long}` : `${names[run.name]} for ${long}`;
    };
    const at = event => {
      const box = svg.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
      const row = Math.floor((event.clientY - box.top) / box.height * rows.length);
      return { column: view[0] + share * (view[1] - view[0]), row: rows[row] };
    };
    svg.addEventListener('pointermove', event => {
      const { column, row } = at(event);
      if (row) readout.textContent = `${row.dataset.name}, ${seconds(moment(column))}: ${said(row, column)}`;
    });
    svg.addEventListener('pointerleave', () => { readout.textContent = '\u00a0'; });

    if (plot.dataset.zoom === undefined) continue;
    const xs = plot.querySelector('.xs');
    const show = ([a, b]) => {
      const wide = Math.min(Math.max(b - a, 10), whole[1]);
      const left = Math.min(Math.max(a, 0), whole[1] - wide);
      view = [left, left + wide];
      svg.setAttribute('viewBox', `${left} 0 ${wide} ${rows.length}`);
      const [start, end] = view.map(moment);
      const rough = (end - start) / 6;
      const unit = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map(m => m * unit).find(s => (end - start) / s <= 7);
      const digits = Math.max(0, -Math.floor(Math.log10(step)));
      xs.replaceChildren();
      for (let n = Math.ceil(start / step); n * step <= end - (end - start) * 0.015; n++) {
        const tick = document.createElement('span');
        tick.style.left = (n * step - start) / (end - start) * 100 + '%';
        // Close up, only the digits that differ tell two moments apart.
        tick.textContent = (n * step).toFixed(digits) + ' s';
        xs.append(tick);
      }
    };
    const zoom = factor => {
      const [middle, half] = [(view[0] + view[1]) / 2, (view[1] - view[0]) / 2 * factor];
      show([middle - half, middle + half]);
    };
    const move = share => {
      const by = (view[1] - view[0]) * share;
      show([view[0] + by, view[1] + by]);
    };
    const deeds = [
      ['+', 'Zoom in', () => zoom(0.5)],
      ['−', 'Zoom out', () => zoom(2)],
      ['←', 'Earlier', () => move(-0.5)],
      ['→', 'Later', () => move(0.5)],
      ['whole', 'Show all', () => show(whole)],
    ];
    const bar = document.createElement('div');
    bar.className = 'zoom';
    bar.setAttribute('role', 'group');
    bar.setAttribute('aria-label', 'Zoom the timeline');
    for (const [text, title, deed] of deeds) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = text;
      button.title = title;
      button.setAttribute('aria-label', title);
      button.addEventListener('click', deed);
      bar.append(button);
    }
    const hint = document.createElement('span');
    hint.textContent = 'Drag across a stretch to zoom into it.';
    bar.append(hint);
    plot.before(bar);

    let began = null;
    svg.addEventListener('pointerdown', event => {
      if (event.button !== 0 || event.pointerType === 'touch') return;
      began = at(event).column;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener('pointerup', event => {
      if (began === null) return;
      const ended = at(event).column;
      if (Math.abs(ended - began) > (view[1] - view[0]) / 100) show([Math.min(began, ended), Math.max(began, ended)]);
      began = null;
    });
    svg.addEventListener('dblclick', () => show(whole));
  }
})();
