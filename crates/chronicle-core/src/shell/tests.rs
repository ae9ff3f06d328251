//! Lines as agents write them, and what is seen in them.

use super::*;

fn effects() -> Rules<'static> {
    Rules { known: known_effects(), ..Rules::default() }
}

fn data() -> Rules<'static> {
    Rules { known: known_data(), ..Rules::default() }
}

#[track_caller]
fn check(rules: &Rules<'_>, line: &str, expected: &[&str]) {
    let found = CommandLine::read(line).matches(rules);
    let what: Vec<_> = found.iter().map(|one| &one.what[..]).collect();
    assert_eq!(what, expected, "{line}");
}

/// Lines in which one command must be seen.
#[track_caller]
fn all_hold(rules: &Rules<'_>, lines: &[&str]) {
    for line in lines {
        let found = CommandLine::read(line).matches(rules);
        assert!(!found.is_empty(), "missed: {line}");
    }
}

#[track_caller]
fn none_hold(rules: &Rules<'_>, lines: &[&str]) {
    for line in lines {
        let found = CommandLine::read(line).matches(rules);
        assert!(found.is_empty(), "{line}: {found:?}");
    }
}

#[test]
fn a_push_is_seen_however_it_is_written() {
    all_hold(
        &effects(),
        &[
            "git push",
            "git push origin main",
            "cd app && git push",
            "make test; git push",
            "make test || git push",
            "git commit -m 'x' && git push -u origin HEAD",
            "true | git push",
            "git push &",
            "(cd app; git push)",
            "{ git push; }",
            "if make; then git push; fi",
            "for r in a b; do git push $r; done",
            "GIT_SSH_COMMAND='ssh -i k' git push",
            "env A=1 B=2 git push",
            "command git push",
            "/usr/bin/git push",
            "\\git push",
            "'git' \"push\"",
            "g\"i\"t pu's'h",
            "git -C sub -c user.name=x push",
            "git --git-dir=.git push",
            "git \\\n  push",
            "git push 2>&1 | tail -3",
            "git push > log",
            "sudo -u deploy git push",
            "timeout 60 git push",
            "nohup git push &",
            "nice -n 10 git push",
            "sh -c 'git push'",
            "bash -lc \"cd x && git push\"",
            "bash -c \"bash -c 'git push'\"",
            "/bin/sh -ec 'git push'",
            "eval git push",
            "eval \"git push\"",
            "ssh host 'cd x && git push'",
            "ssh host git push",
            "su - me -c 'git push'",
            "echo git push | xargs -I{} git push {}",
            "find . -name .git -execdir git push ;",
            "echo $(git push)",
            "x=`git push`",
            "echo \"$(git push)\"",
            "cat <(git push)",
            "bash <<EOF\ngit push\nEOF",
            "cat <<'E' | sh\ngit push\nE",
            "echo 'git push' | bash",
            "printf 'git push\\n' | sh -s",
            "bash <<< 'git push'",
            "CMD='git push'; $CMD",
            "python3 -c \"import os; os.system('git push')\"",
            "docker compose run --rm app git push",
            "direnv exec . git push",
            "git subtree push --prefix=x origin gh-pages",
            "jj git push",
            "# comment\ngit push",
            "true # git\ngit push",
        ],
    );
}

#[test]
fn what_only_speaks_of_a_push_is_none() {
    none_hold(
        &effects(),
        &[
            "",
            "git status",
            "git pull",
            "git stash push -m x",
            "git commit -m 'then push'",
            "git commit -m push",
            "git push --dry-run",
            "git log --grep push",
            "echo git push",
            "echo 'git push'",
            "grep -rn 'git push' .",
            "cat > deploy.sh <<'EOF'\ngit push\nEOF",
            "# git push",
            "ls # git push",
            "vim push.sh",
            "curl https://example.org",
            "curl -sSL -o x https://example.org",
            "curl --compressed -H 'A: b' https://example.org",
            "curl -G -d q=1 https://example.org",
            "npm install && npm test",
            "cargo build",
            "cargo publish --dry-run",
            "kubectl get pods",
            "kubectl apply -f x --dry-run=client",
            "kubectl logs deploy/x",
            "terraform plan",
            "docker build .",
            "aws s3 ls",
            "aws ec2 describe-instances",
            "gh pr view 3",
            "helm list",
        ],
    );
}

#[test]
fn other_ways_to_the_outside() {
    all_hold(
        &effects(),
        &[
            "npm publish",
            "cd pkg && pnpm -r publish --access public",
            "npx --yes lerna publish",
            "cargo publish -p x",
            "poetry publish --build",
            "twine upload dist/*",
            "curl -X POST https://x -d @y",
            "curl -sXDELETE https://x",
            "curl --request PUT https://x",
            "curl --request=PATCH https://x",
            "curl https://x --data-raw '{}'",
            "curl -d a=b https://x",
            "curl --json '{}' https://x",
            "wget --post-data=x https://x",
            "http POST example.org a=b",
            "terraform apply -auto-approve",
            "terraform -chdir=infra destroy",
            "TF_VAR_x=1 tofu apply",
            "kubectl apply -f x",
            "kubectl -n prod delete pod x",
            "kubectl rollout restart deploy/x",
            "helm upgrade x ./chart",
            "docker push r/x",
            "docker buildx build --push .",
            "aws s3 rm s3://b --recursive",
            "aws lambda invoke out --function-name f",
            "gh pr create --fill",
            "gh api -X DELETE /repos/x",
            "mail -s hi me@example.org < x",
            "sendmail me@example.org",
            "firebase deploy",
            "npx wrangler deploy",
            "fly deploy",
        ],
    );
}

#[test]
fn what_changes_data_is_seen() {
    all_hold(
        &data(),
        &[
            "prisma migrate reset",
            "npx prisma migrate reset --force",
            "npx --yes prisma@5 migrate reset",
            "bunx prisma migrate reset",
            "bun x prisma migrate reset",
            "pnpm exec prisma migrate reset",
            "pnpm dlx prisma migrate reset",
            "yarn prisma migrate reset",
            "npm exec -- prisma migrate reset",
            "node_modules/.bin/prisma migrate reset",
            "dotenv -e .env -- npx prisma db push --accept-data-loss",
            "DATABASE_URL=x npx prisma migrate deploy",
            "alembic downgrade base",
            "poetry run alembic downgrade -1",
            "uv run alembic downgrade -1",
            "pipenv run alembic upgrade head",
            "python -m alembic downgrade base",
            "python3.11 -m alembic downgrade base",
            "docker compose exec web alembic downgrade base",
            "docker exec -it web bash -c 'alembic downgrade base'",
            "kubectl exec -it p -- alembic downgrade base",
            "rails db:drop",
            "bin/rails db:reset",
            "bundle exec rails db:drop db:create",
            "RAILS_ENV=test rake db:schema:load",
            "ruby bin/rails db:migrate",
            "python manage.py flush --no-input",
            "./manage.py migrate app zero",
            "uv run python manage.py flush",
            "php artisan migrate:fresh --seed",
            "mix ecto.reset",
            "dropdb app",
            "sudo -u postgres dropdb app",
            "psql -c 'DROP TABLE users'",
            "psql \"$URL\" -c \"drop   database app\"",
            "echo 'DROP TABLE users;' | psql",
            "psql <<SQL\nDROP SCHEMA public CASCADE;\nSQL",
            "mysql -e 'TRUNCATE users'",
            "sqlite3 app.db 'delete from users'",
            "sqlite3 app.db \"DROP TABLE x\"",
            "psql -f reset.sql",
            "python -c \"c.execute('DROP TABLE x')\"",
            "redis-cli FLUSHALL",
            "mongosh --eval 'db.dropDatabase()'",
            "docker compose down -v",
            "docker volume rm pgdata",
            "npm run db:reset",
            "make reset-db",
            "npx sequelize-cli db:migrate:undo:all",
            "npx knex migrate:rollback",
            "flyway clean",
            "sqlx database drop -y",
            "diesel migration revert",
            "supabase db reset",
            "heroku run rails db:migrate",
            "cd api; (source .venv/bin/activate && alembic downgrade -1)",
        ],
    );
    none_hold(
        &data(),
        &[
            "prisma generate",
            "npx prisma migrate status",
            "alembic history",
            "rails server",
            "rails routes | grep db",
            "python manage.py runserver",
            "grep -rn 'DROP TABLE' migrations",
            "cat > m.sql <<EOF\nDROP TABLE x;\nEOF",
            "git commit -m 'drop table users'",
            "psql -c 'select 1'",
            "docker compose up -d",
            "npm test",
            "ls",
        ],
    );
}

#[test]
fn the_command_itself_is_told_once() {
    check(
        &effects(),
        "cd x && npm publish --tag next && git push",
        &["npm publish --tag next", "git push"],
    );
    check(&effects(), "sudo env A=1 git push", &["git push"]);
    check(&effects(), "git push; git push", &["git push"]);
    check(&data(), "npx prisma migrate reset", &["prisma migrate reset"]);
    let found = CommandLine::read("git push").matches(&effects());
    assert!(found[0].rule.starts_with("git push !stash"), "{found:?}");
}

#[test]
fn what_people_write_counts_and_what_they_except_does_not() {
    let commands = ["./deploy.sh".to_owned(), "make release".to_owned(), "~now live".to_owned()];
    let except = ["git push staging".to_owned()];
    let tools = ["mcp__mail__send*".to_owned()];
    let rules =
        Rules { known: known_effects(), commands: &commands, tools: &tools, except: &except };
    check(&rules, "make -j4 release", &["make -j4 release"]);
    check(&rules, "git push staging main", &[]);
    check(&rules, "git push origin main", &["git push origin main"]);
    check(&rules, "x --say 'now live'", &["x --say 'now live'"]);
    assert_eq!(
        match_tool("mcp__mail__send_draft", &rules).map(|found| found.rule),
        Some(tools[0].clone())
    );
    assert_eq!(match_tool("mcp__mail__read", &rules), None);
    check(&rules, "sh ./deploy.sh prod", &["./deploy.sh prod"]);
}

#[test]
fn what_cannot_be_read_counts() {
    let mut line = "git push".to_owned();
    for _ in 0..40 {
        line = format!("sh -c {line:?}");
        if line.len() > 100_000 {
            break;
        }
    }
    assert!(!CommandLine::read(&line).matches(&data()).is_empty());
    let nested = format!("{}x{}", "$(".repeat(60), ")".repeat(60));
    assert!(!CommandLine::read(&nested).matches(&data()).is_empty());
}

/// A hook waits for this: a long script is read in time of its length.
#[test]
fn long_lines_are_read_quickly() {
    let begun = std::time::Instant::now();
    let long = "echo 'some text' && make x; ".repeat(4_000);
    none_hold(&effects(), &[&long]);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}
