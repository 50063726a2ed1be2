(function () {
  'use strict';
  var CHARACTER = 7.23;

  function Graph(svg) {
    var root = svg.closest('section') || svg;
    var standsAlone = svg === document.documentElement;
    var groups = Array.prototype.slice.call(svg.querySelectorAll('.boxes > g'));
    var width = +svg.dataset.width, row = +svg.dataset.row, top = +svg.dataset.top;
    var rows = +svg.dataset.rows, up = svg.dataset.grows === 'up';
    var whole = width;
    // In a page the picture scrolls by itself: what is found and said about it stays in view.
    var frame = standsAlone ? null : svg.closest('.picture');
    var isShown = false;
    // Bounds of the boxes that are drawn now.
    var deepest = 0;
    var focus = 0, selected = -1, pattern = '';

    // Parents come first, so what is above a box are the numbers up to its end.
    var open = [], all = [];
    var boxes = groups.map(function (group, index) {
      var rect = group.querySelector('rect'), text = group.querySelector('text');
      var depth = +group.dataset.d;
      while (open.length > depth) { all[open.pop()].end = index; }
      var box = {
        group: group, rect: rect, text: text, depth: depth,
        name: group.querySelector('title').textContent,
        more: group.querySelector('desc').textContent,
        mark: text.dataset.m ? text.dataset.m + ' ' : '',
        x: +rect.getAttribute('x') / whole, width: +rect.getAttribute('width') / whole,
        parent: open.length ? open[open.length - 1] : -1, end: groups.length
      };
      open.push(index);
      all[index] = box;
      return box;
    });
    open.forEach(function (index) { boxes[index].end = boxes.length; });

    function part(name) { return root.querySelector('.' + name); }
    function say(name, text) { var at = part(name); if (at) { at.textContent = text; } }
    var note = part('details') ? part('details').textContent : '';

    function place() {
      var at = boxes[focus];
      deepest = 0;
      boxes.forEach(function (box, index) {
        var inside = index >= focus && index < at.end;
        var below = index < focus && focus < box.end;
        box.group.style.display = inside || below ? '' : 'none';
        if (!inside && !below) { return; }
        deepest = Math.max(deepest, box.depth);
        var x = below ? 0 : (box.x - at.x) / at.width * width;
        var w = below ? width : box.width / at.width * width;
        box.group.classList.toggle('below', below);
        box.rect.setAttribute('x', x);
        box.rect.setAttribute('width', Math.max(w, 0));
        box.text.setAttribute('x', x + 3);
        var room = Math.floor((w - 6) / CHARACTER), label = box.mark + box.name;
        box.text.textContent = room < 3 ? '' :
          label.length > room ? label.slice(0, room - 1) + '…' : label;
      });
    }

    function fit() {
      var room = standsAlone ? window.innerWidth : (frame || root).clientWidth;
      width = Math.max(room, 200);
      var height = svg.getAttribute('height');
      svg.setAttribute('width', width);
      svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
      place();
      if (!isShown && frame && frame.clientHeight) { isShown = true; show(focus, boxes[focus].end); }
      hint();
    }

    // Scrolls no more than it takes to see a box with two of its callers, and what is on it up to box `end` as far as there is room.
    function show(index, end) {
      if (!frame) { return; }
      var highest = boxes[index].depth, lowest = Math.max(highest - 2, 0);
      for (var at = index; at < end; at += 1) { highest = Math.max(highest, boxes[at].depth); }
      var first = top + row * (up ? rows - 1 - highest : lowest);
      var last = top + row * (up ? rows - lowest : highest + 1);
      var room = frame.clientHeight;
      if (up) { first = Math.max(first, last - room); } else { last = Math.min(last, first + room); }
      frame.scrollTop = Math.min(Math.max(frame.scrollTop, last - room), first);
      hint();
    }

    // Rows beyond an edge of the frame are counted at that edge; a click there goes on.
    function hint() {
      if (!frame) { return; }
      var first = top + (up ? row * (rows - 1 - deepest) : 0), last = first + row * (deepest + 1);
      var beyond = [frame.scrollTop - first, last - frame.scrollTop - frame.clientHeight];
      ['above', 'under'].forEach(function (edge, index) {
        // A row of which a third is cut off can be read.
        var count = frame.clientHeight ? Math.floor(beyond[index] / row + 0.6) : 0, band = part(edge);
        band.hidden = count < 1;
        band.querySelector('button').textContent = (index ? '▼ ' : '▲ ') + count + (count === 1 ? ' more row' : ' more rows') + ': scroll, or click here';
      });
    }

    function remember() {
      try {
        var state = (focus ? 'z=' + focus : '') + (pattern ? '&s=' + encodeURIComponent(pattern) : '');
        history.replaceState(null, '', '#' + state);
      } catch (error) { /* A file in a frame has no history. */ }
    }

    function zoom(index) {
      focus = index;
      place();
      show(index, boxes[index].end);
      if (pattern) { search(pattern); }
      say('zoomed', index ? 'Zoomed to ' + boxes[index].name : '');
      remember();
    }

    function expression(text) {
      var flags = text === text.toLowerCase() ? 'i' : '';
      try { return new RegExp(text, flags); } catch (error) {
        return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), flags);
      }
    }

    // A box on top of another one that matches too is counted once.
    function search(text) {
      pattern = text;
      var wanted = text && expression(text), share = 0, inView = 0, until = 0, count = 0;
      boxes.forEach(function (box, index) {
        var matches = Boolean(wanted) && index > 0 && wanted.test(box.name);
        box.group.classList.toggle('matched', matches);
        if (!matches) { return; }
        count += 1;
        if (index < until) { return; }
        until = box.end;
        share += box.width;
      });
      until = 0;
      var at = boxes[focus];
      for (var index = focus; index < at.end; index += 1) {
        if (index >= until && boxes[index].group.classList.contains('matched')) {
          until = boxes[index].end;
          inView += boxes[index].width / at.width;
        }
      }
      var percent = function (part) { return (100 * part).toFixed(part < 0.1 ? 2 : 1) + ' %'; };
      say('found', !text ? '' : count === 0 ? 'nothing matches' :
        'matched: ' + percent(share) + ' of all' + (focus ? ', ' + percent(inView) + ' of the zoomed box' : ''));
      remember();
    }

    function select(index) {
      if (index < 0 || index >= boxes.length) { return; }
      if (selected >= 0) { boxes[selected].group.classList.remove('selected'); }
      selected = index;
      boxes[index].group.classList.add('selected');
      show(index, index + 1);
      describe(index);
    }

    function describe(index) {
      say('details', index < 0 ? note : boxes[index].name + ' — ' + boxes[index].more);
    }

    function neighbour(step) {
      var box = boxes[Math.max(selected, 0)];
      for (var index = Math.max(selected, 0) + step; index >= 0 && index < boxes.length; index += step) {
        if (boxes[index].depth === box.depth && boxes[index].group.style.display !== 'none') { return index; }
      }
      return selected;
    }

    function ask() {
      var input = part('pattern');
      if (input) { input.focus(); input.select(); return; }
      var text = window.prompt('Search for a function (regular expression):', pattern);
      if (text !== null) { search(text); }
    }

    function indexOf(target) {
      var group = target.closest ? target.closest('.boxes > g') : null;
      return group ? groups.indexOf(group) : -1;
    }

    function key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        if (standsAlone && event.ctrlKey && event.key === 'f') { event.preventDefault(); ask(); }
        return;
      }
      if (event.target.tagName === 'INPUT' && event.key !== 'Escape') { return; }
      var leafward = up ? 'ArrowUp' : 'ArrowDown', rootward = up ? 'ArrowDown' : 'ArrowUp';
      var at = Math.max(selected, 0);
      if (event.key === '/') { ask(); }
      else if (event.key === 'Escape') {
        if (pattern) { search(''); if (part('pattern')) { part('pattern').value = ''; } } else { zoom(0); }
      } else if (event.key === 'Enter' && event.target.classList.contains('reset')) { zoom(0); }
      else if (event.key === 'Enter' && event.target.classList.contains('search')) { ask(); }
      else if (event.key === 'Enter' && selected >= 0) { zoom(selected); }
      else if (event.key === leafward) { select(selected < 0 ? focus : at + 1 < boxes[at].end ? at + 1 : at); }
      else if (event.key === rootward) { select(boxes[at].parent < 0 ? at : boxes[at].parent); }
      else if (event.key === 'ArrowLeft') { select(neighbour(-1)); }
      else if (event.key === 'ArrowRight') { select(neighbour(1)); }
      else { return; }
      event.preventDefault();
    }

    svg.addEventListener('click', function (event) {
      var index = indexOf(event.target);
      if (index >= 0) { select(index); zoom(index); }
    });
    svg.addEventListener('mouseover', function (event) { describe(indexOf(event.target)); });
    root.addEventListener('click', function (event) {
      if (event.target.classList.contains('reset')) { zoom(0); }
      if (event.target.classList.contains('search')) { ask(); }
      // Rows from before stay at the other edge.
      var page = frame ? Math.max(frame.clientHeight - 3 * row, row) : 0;
      if (event.target.closest('.above')) { frame.scrollTop -= page; }
      if (event.target.closest('.under')) { frame.scrollTop += page; }
    });
    if (frame) { frame.addEventListener('scroll', hint); }
    root.addEventListener('input', function (event) {
      if (event.target.classList.contains('pattern')) { search(event.target.value); }
    });
    (standsAlone ? window : root).addEventListener('keydown', key);
    window.addEventListener('resize', fit);
    fit();
    this.fit = fit;
    this.key = key;
    this.restore = function () {
      var state = /^#(?:z=(\d+))?(?:&s=(.*))?$/.exec(location.hash);
      if (state && state[1] && +state[1] < boxes.length) { zoom(+state[1]); }
      if (state && state[2]) { search(decodeURIComponent(state[2])); }
    };
  }

  function start() {
    var graphs = Array.prototype.map.call(document.querySelectorAll('svg.flame'), function (svg) { return new Graph(svg); });
    if (graphs.length) { graphs[0].restore(); }
    document.addEventListener('change', function (event) {
      if (event.target.name !== 'view') { return; }
      document.querySelectorAll('section.graph').forEach(function (section) {
        section.hidden = section.id !== event.target.value;
      });
      graphs.forEach(function (graph) { graph.fit(); });
    });
    // Keys that nothing on the page has a use for are for the picture that is seen.
    document.addEventListener('keydown', function (event) {
      if (event.defaultPrevented || event.target.tagName === 'INPUT' || event.target.closest('section')) { return; }
      document.querySelectorAll('section.graph').forEach(function (section, index) {
        if (!section.hidden && graphs[index]) { graphs[index].key(event); }
      });
    });
  }

  if (document.readyState === 'loading') {
    document.addEventListener('DOMContentLoaded', start);
  } else {
    start();
  }
}());
