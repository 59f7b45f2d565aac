select * from {{ source('lineage', 'allowed_licences') }}
