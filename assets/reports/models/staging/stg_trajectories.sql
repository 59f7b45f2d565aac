select * from {{ source('lineage', 'trajectories') }}
