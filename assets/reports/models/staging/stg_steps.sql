select * from {{ source('lineage', 'steps') }}
