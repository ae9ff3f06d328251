//! Memory stays bounded, and descriptors do.

use crate::world::World;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn two_hundred_thousand_files_take_little_memory() {
    let Some(world) = World::new("many_files::two_hundred_thousand") else { return };
    let make = "import os\nfor d in range(2000):\n os.mkdir(f\"d{d}\")\n for f in range(100): \
        os.mknod(f\"d{d}/a-name-of-usual-length-{f}\")";
    world.outside(&format!("python3 -c '{make}'"));
    let before = resident();
    assert_eq!(world.sh("find . -size +1 | wc -l").trim(), "2001");
    let known = world.mounted().known_files();
    assert!(known > 150_000, "the kernel forgot most of them: {known}");
    let each = (resident() - before) * 1024 / known as u64;
    assert!(each < 400, "{each} bytes a file");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 5000, "{open} descriptors");
}
