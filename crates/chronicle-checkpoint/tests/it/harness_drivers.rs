//! Checkpoints of real parts by drivers alone, in the order of calls that the trait promises.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chronicle_checkpoint::drivers::choose;
use chronicle_checkpoint::{
    Aside, Captured, Contents, Deadline, Driver, End, Part, Problem, Restoration, Result, Site,
};
use chronicle_core::{Home, InitOptions, LocalStore, Workspace};

/// A store, a place for what drivers keep, and the parts.
pub struct World {
    pub workspace: Workspace,
    pub store: LocalStore,
    pub place: PathBuf,
    pub parts: Vec<Part>,
}

/// A checkpoint, without its lock.
pub struct Made {
    pub captured: Vec<Captured>,
}

impl World {
    /// With the store and the place below a directory.
    pub fn new(home: &Path, parts: Vec<Part>) -> Self {
        let top = home.with_extension("workspace");
        std::fs::create_dir_all(&top).expect("a workspace");
        let workspace = Workspace::init(&Home::at(home), &top, &InitOptions::default());
        let workspace = workspace.expect("a workspace").0;
        let store = workspace.content_store().expect("a store");
        let place = workspace.checkpoint_place().expect("a place").join("kept");
        Self { workspace, store, place, parts }
    }

    fn site<'s>(&'s self, contents: &'s Contents<'s>, id: &'s str) -> Site<'s> {
        Site { contents, place: &self.place, id, previous: None }
    }

    /// The drivers of the parts: the one that is wanted, else the fastest.
    pub fn drivers(&self, wanted: Option<&str>) -> Vec<Box<dyn Driver>> {
        let driver = |part| choose(part, wanted).expect("some driver fits").0;
        self.parts.iter().map(driver).collect()
    }

    /// Makes a checkpoint.
    pub fn create(&self, wanted: Option<&str>, id: &str) -> Result<Made> {
        let drivers = self.drivers(wanted);
        let intake = self.workspace.checkpoint_intake(&self.store)?;
        let mut contents = Contents::taking_in(&self.store, intake);
        let site = self.site(&contents, id);
        let mut captures = Vec::new();
        for (driver, part) in drivers.iter().zip(&self.parts) {
            captures.push(driver.prepare(part, &site)?);
        }
        let limit = Deadline::after(Duration::from_secs(30));
        let mut taken = captures.iter_mut().try_for_each(|capture| capture.freeze(&limit));
        if taken.is_ok() {
            taken = captures.iter_mut().try_for_each(|capture| capture.boundary(&limit));
        }
        captures.iter_mut().try_for_each(|capture| capture.thaw())?;
        taken?;
        let captured = captures.iter_mut().map(|capture| capture.capture());
        let captured = captured.collect::<Result<Vec<_>>>()?;
        drop(captures);
        contents.finish()?;
        Ok(Made { captured })
    }

    fn driver_of(captured: &Captured) -> Box<dyn Driver> {
        chronicle_checkpoint::drivers::named(&captured.driver).expect("a driver of that name")
    }

    /// What stands in the way of a restore.
    pub fn gate(&self, made: &Made) -> Result<Vec<Problem>> {
        let contents = Contents::read_only(&self.store);
        let mut problems = Vec::new();
        for (part, captured) in self.parts.iter().zip(&made.captured) {
            let site = self.site(&contents, "gate");
            let driver = Self::driver_of(captured);
            if let Err(error) = driver.verify(captured, &site) {
                problems.push(error.into_problem(&part.name));
            }
            problems.extend(driver.gate(&Restoration { part, captured, present: None, site })?);
        }
        Ok(problems)
    }

    /// Brings a checkpoint back; what had to be left beside.
    pub fn restore(&self, made: &Made, id: &str) -> Result<Vec<Aside>> {
        let problems = self.gate(made)?;
        if !problems.is_empty() {
            return Err(chronicle_checkpoint::Error::Gate(problems));
        }
        let contents = Contents::read_only(&self.store);
        let one = |at: usize, present| Restoration {
            part: &self.parts[at],
            captured: &made.captured[at],
            present,
            site: self.site(&contents, id),
        };
        let drivers: Vec<_> = made.captured.iter().map(Self::driver_of).collect();
        let each = || drivers.iter().enumerate();
        each().try_for_each(|(at, driver)| driver.halt(&one(at, None)))?;
        let present = self.create(None, &format!("{id}p"))?;
        let staged = each().map(|(at, driver)| driver.restore(&one(at, None)));
        let staged = staged.collect::<Result<Vec<_>>>()?;
        each().try_for_each(|(at, driver)| driver.swap(&one(at, None), &staged[at]))?;
        // Whoever dies here does it all again.
        each().try_for_each(|(at, driver)| driver.swap(&one(at, None), &staged[at]))?;
        each().try_for_each(|(at, driver)| driver.check(&one(at, None)))?;
        let mut asides = Vec::new();
        for (at, driver) in each() {
            let restoration = one(at, Some(&present.captured[at]));
            asides.extend(driver.clear(&restoration, &staged[at], End::New)?);
        }
        each().try_for_each(|(at, driver)| driver.resume(&one(at, None)))?;
        self.discard(&present)?;
        Ok(asides)
    }

    /// Brings a checkpoint back up to the swap, and takes that back.
    pub fn restore_and_take_back(&self, made: &Made, id: &str) -> Result<()> {
        let contents = Contents::read_only(&self.store);
        for (part, captured) in self.parts.iter().zip(&made.captured) {
            let site = self.site(&contents, id);
            let (driver, present) = (Self::driver_of(captured), None);
            let restoration = Restoration { part, captured, present, site };
            driver.halt(&restoration)?;
            let staged = driver.restore(&restoration)?;
            driver.swap(&restoration, &staged)?;
            driver.swap_back(&restoration, &staged)?;
            driver.swap_back(&restoration, &staged)?;
            assert!(driver.clear(&restoration, &staged, End::Old)?.is_empty());
            driver.resume(&restoration)?;
        }
        Ok(())
    }

    /// Removes what drivers keep of a checkpoint.
    pub fn discard(&self, made: &Made) -> Result<()> {
        let contents = Contents::read_only(&self.store);
        for captured in made.captured.iter().chain(&made.captured) {
            Self::driver_of(captured).discard(captured, &self.site(&contents, "discard"))?;
        }
        Ok(())
    }
}
