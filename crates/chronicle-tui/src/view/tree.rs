//! The workspace at a moment, and a file's content.

use ratatui::layout::Rect;

use super::changes::{bytes, unusual};
use super::{Canvas, doc, note, place};
use crate::model::{Content, Tree};
use crate::shown::{fit, fit_path};
use crate::theme::Look;

pub(super) fn title(it: &Tree) -> (String, String) {
    let filter = match it.filter.is_empty() {
        true => String::new(),
        false => format!("with {}  ", it.filter),
    };
    let facts = format!("{filter}{}", place(it.list.selected, it.shown.len()));
    (format!("Files {}", it.words), facts)
}

pub(super) fn draw(canvas: &mut Canvas<'_>, it: &Tree, area: Rect) {
    let room = usize::from(area.width.saturating_sub(2));
    let here = if it.path.is_root() { "./".to_owned() } else { format!("./{}/", it.path) };
    canvas.text(area.x + 1, area.y, area.width, &fit_path(&here, room), Look::Strong);
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if let Some(failed) = &it.failed {
        return note(canvas, area, failed, Look::Warning);
    }
    if it.loading {
        return note(canvas, area, "Reading...", Look::Faint);
    }
    if it.shown.is_empty() {
        return note(canvas, area, "Nothing is here.", Look::Faint);
    }
    let seen = it.list.seen(it.shown.len(), usize::from(area.height));
    for (line, at) in seen.enumerate() {
        let y = area.y + u16::try_from(line).unwrap_or(0);
        let row = &it.rows[it.shown[at]];
        let is_directory = row.entry.is_directory();
        let slash = if is_directory { "/" } else { "" };
        let facts = match (is_directory, unusual(&row.view)) {
            (true, _) => String::new(),
            (false, Some(kind)) => kind,
            (false, None) if row.view.secret => format!("secret  {}", bytes(&row.view)),
            (false, None) => bytes(&row.view),
        };
        let mode = row.view.mode.clone().unwrap_or_default();
        let end = area.right().saturating_sub(1);
        canvas.right(end, y, &mode, Look::Faint);
        let wide = (area.width / 3).min(40);
        let facts = fit(&facts, usize::from(wide.saturating_sub(2)));
        canvas.right(end.saturating_sub(6), y, &facts, Look::Faint);
        let room = area.width.saturating_sub(8 + wide.max(12));
        let look = if is_directory { Look::Title } else { Look::Plain };
        let name = fit(&format!("{}{slash}", row.name), usize::from(room));
        canvas.text(area.x + 2, y, room, &name, look);
        if at == it.list.selected {
            canvas.chosen(area, y);
        }
    }
}

pub(super) fn content_title(it: &Content) -> (String, String) {
    let facts = it.view.as_ref().map_or_else(String::new, |view| {
        let length = view.doc.lines.len();
        format!("{}/{length}", (view.top + 1).min(length))
    });
    (it.title.clone(), facts)
}

pub(super) fn draw_content(canvas: &mut Canvas<'_>, it: &Content, area: Rect) {
    match (&it.view, &it.failed) {
        (Some(view), _) if view.doc.lines.is_empty() => {
            note(canvas, area, "The file is empty.", Look::Faint);
        }
        (Some(view), _) => doc(canvas, view, area),
        (None, Some(failed)) => note(canvas, area, failed, Look::Warning),
        (None, None) => note(canvas, area, "Reading...", Look::Faint),
    }
}
