//! Numbered places for many small things of one kind, that grow without copying what is there.

const CHUNK: usize = 4096;

/// Things under numbers; a number is used again once its thing is gone.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
    length: u32,
}

impl<T> Slab<T> {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), length: 0 }
    }

    /// Puts a thing where `make` gets the one that lay there before, if there was one.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Option<&T>) -> T) -> u32 {
        if let Some(number) = self.free.pop() {
            let made = make(Some(self.get(number)));
            *self.get_mut(number) = made;
            return number;
        }
        let number = self.length;
        if (number as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.last_mut().expect("BUG: a chunk was just made");
        last.push(make(None));
        self.length += 1;
        number
    }

    /// Gives a number back; its thing stays until the number is used again.
    pub(crate) fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many are in use.
    pub(crate) fn count(&self) -> usize {
        self.length as usize - self.free.len()
    }

    /// How many numbers there are, used or not.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}
