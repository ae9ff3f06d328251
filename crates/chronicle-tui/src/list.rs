//! A list of which only a part is seen: what is chosen, and where the part begins.

/// Where one stands in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The chosen row.
    pub(crate) selected: usize,
    /// The first row that is seen.
    pub(crate) top: usize,
}

/// How to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// So many rows, down if positive.
    By(i64),
    /// So many halves of a page, down if positive.
    Half(i64),
    /// So many pages, down if positive.
    Page(i64),
    /// To the first row.
    First,
    /// To the last row.
    Last,
}

impl Move {
    /// Where it leads from a place, in a list of so many rows seen through so many.
    pub(crate) fn from(self, place: usize, length: usize, height: usize) -> usize {
        let height = i64::try_from(height.max(1)).unwrap_or(1);
        let step = match self {
            Self::First => return 0,
            Self::Last => return length.saturating_sub(1),
            Self::By(rows) => rows,
            Self::Half(halves) => halves * (height / 2).max(1),
            Self::Page(pages) => pages * (height - 1).max(1),
        };
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        let there = usize::try_from(place.saturating_add(step).max(0)).unwrap_or(0);
        there.min(length.saturating_sub(1))
    }
}

impl List {
    /// Moves, and keeps what is chosen in sight.
    pub(crate) fn go(&mut self, step: Move, length: usize, height: usize) {
        self.selected = step.from(self.selected, length, height);
        self.fit(length, height);
    }

    /// Keeps what is chosen in the list and in sight.
    pub(crate) fn fit(&mut self, length: usize, height: usize) {
        let height = height.max(1);
        self.selected = self.selected.min(length.saturating_sub(1));
        self.top = self.top.min(length.saturating_sub(height));
        if self.selected < self.top {
            self.top = self.selected;
        }
        if self.selected >= self.top + height {
            self.top = self.selected + 1 - height;
        }
    }

    /// The rows that are seen.
    pub(crate) fn seen(&self, length: usize, height: usize) -> std::ops::Range<usize> {
        self.top.min(length)..(self.top + height).min(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_stays_in_the_list_and_in_sight() {
        let mut list = List::default();
        list.go(Move::Last, 100, 10);
        assert_eq!(list, List { selected: 99, top: 90 });
        list.go(Move::By(-1), 100, 10);
        assert_eq!(list, List { selected: 98, top: 90 });
        list.go(Move::Page(-2), 100, 10);
        assert_eq!(list, List { selected: 80, top: 80 });
        list.fit(3, 10);
        assert_eq!(list, List { selected: 2, top: 0 });
        list.fit(0, 0);
        assert_eq!(list, List::default());
    }
}
