-- Six jobs that release 0.1.0 has added.
PRAGMA application_id = 0x504c4654;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
INSERT INTO word VALUES(1,'small');
INSERT INTO word VALUES(2,'physics');
CREATE TABLE program (id INTEGER PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (name, hash));
INSERT INTO program VALUES(1,'solver','00000000000000000000000000000000');
INSERT INTO program VALUES(2,'mesh','00000000000000000000000000000000');
CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    -- Tells the step from all others; what its summary held.
    key BLOB NOT NULL UNIQUE,
    content BLOB NOT NULL,
    -- Seconds since 1970, and of the run.
    started INTEGER NOT NULL,
    seconds REAL NOT NULL,
    program INTEGER NOT NULL REFERENCES program,
    partition INTEGER NOT NULL REFERENCES word,
    grp INTEGER NOT NULL REFERENCES word,
    user INTEGER NOT NULL,
    nodes INTEGER NOT NULL,
    cores INTEGER NOT NULL,
    ranks INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    mpi REAL,
    wait REAL,
    -- Why no lever was judged, else NULL.
    unjudged INTEGER,
    -- Least and most gain of each lever, in 4-byte floats; NaN where it is not known.
    gains BLOB NOT NULL
);
INSERT INTO job VALUES(1,X'15434f5131f56cfc4e1d430492a30b91',X'ccf5becc0b52e96f5b5ed78e210fa3df',1767225600,3600.0,1,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
INSERT INTO job VALUES(2,X'3acad63140d0142433a30b287326d460',X'e4b395141913ceb2e9b0e0fe11dfbd3a',1767225600,3600.0,2,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
INSERT INTO job VALUES(3,X'e6ddaae6af66dba8212ea38da10a390f',X'4b775e4679b1c82a78e1bb80c17711d1',1767225600,3600.0,2,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
INSERT INTO job VALUES(4,X'2ba5871b91897ea610a0d0312ef45829',X'762704661bdd4abe81e2bcec164804ae',1767225600,3600.0,1,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
INSERT INTO job VALUES(5,X'fd63c1ef6e315bb6160f471b39b88e0b',X'63a3c01c03acaf4c8ac6af8d72f37179',1767225600,3600.0,2,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
INSERT INTO job VALUES(6,X'e32795eb0398e4aeab682c1834c974b1',X'7d68694a2984d0d11f962c51075a584e',1767225600,3600.0,2,1,2,1000,1,10,10,0,0,0.5,0.25,NULL,X'cdcccc3dcdcc4c3e0000c07f0000c07f0000c07f0000c07f0000c07f0000c07f');
CREATE TABLE sum (
    month INTEGER NOT NULL,
    program INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    -- A lever, or 0 for all jobs, or -1 - N for those that could not be judged for the reason N.
    kind INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    core_seconds REAL NOT NULL,
    -- Of a lever: what it would save of these core seconds. Of all jobs: time in MPI and of it waiting.
    low REAL NOT NULL,
    high REAL NOT NULL,
    PRIMARY KEY (month, program, partition, grp, kind)
) WITHOUT ROWID;
INSERT INTO sum VALUES(24312,1,1,2,0,2,72000.0,36000.0,18000.0);
INSERT INTO sum VALUES(24312,1,1,2,1,2,72000.0,7200.0,14400.0);
INSERT INTO sum VALUES(24312,2,1,2,0,4,144000.0,72000.0,36000.0);
INSERT INTO sum VALUES(24312,2,1,2,1,4,144000.0,14400.0,28800.0);
CREATE INDEX job_of_program ON job (program);
COMMIT;
