//! A hash index over things that lie elsewhere: four bytes a slot, the keys are asked of the owner.

/// No slot and no number.
pub(crate) const NONE: u32 = u32::MAX;

/// Numbers by the hash of what they stand for.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<u32>,
    used: usize,
}

impl Table {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { slots: vec![NONE; 64], used: 0 }
    }

    /// The number with this hash that is the one meant.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.slots[at] != NONE {
            if is_it(self.slots[at]) {
                return Some(self.slots[at]);
            }
            at = self.next(at);
        }
        None
    }

    /// Adds a number that is not in it.
    pub(crate) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.grow(&hash_of);
        }
        self.put(hash, number);
        self.used += 1;
    }

    /// Takes a number out; the ones behind it move up, so that no tombstones are left.
    pub(crate) fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let mut hole = self.home(hash);
        while self.slots[hole] != number {
            if self.slots[hole] == NONE {
                return;
            }
            hole = self.next(hole);
        }
        let mut at = self.next(hole);
        while self.slots[at] != NONE {
            let home = self.home(hash_of(self.slots[at]));
            let mask = self.slots.len() - 1;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = NONE;
        self.used -= 1;
    }

    fn grow(&mut self, hash_of: &impl Fn(u32) -> u64) {
        let larger = vec![NONE; self.slots.len() * 2];
        for number in std::mem::replace(&mut self.slots, larger) {
            if number != NONE {
                self.put(hash_of(number), number);
            }
        }
    }

    fn put(&mut self, hash: u64, number: u32) {
        let mut at = self.home(hash);
        while self.slots[at] != NONE {
            at = self.next(at);
        }
        self.slots[at] = number;
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        // Few homes, so that almost everything collides.
        let hash_of = |number: u32| u64::from(number % 7);
        let (mut table, mut model) = (Table::new(), BTreeSet::new());
        let mut state = 1_u32;
        for _ in 0..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 16) % 100;
            if model.remove(&number) {
                table.remove(hash_of(number), number, hash_of);
            } else {
                model.insert(number);
                table.insert(hash_of(number), number, hash_of);
            }
            for asked in 0..100 {
                let found = table.find(hash_of(asked), |it| it == asked);
                assert_eq!(found.is_some(), model.contains(&asked));
            }
        }
    }
}
